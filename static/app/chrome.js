// What every page has: theme, drawers, keys, live regions, toasts, settings of this browser.
import { identify } from "./api.js";
import { glyph, h, iconButton, iconsAt, replace } from "./dom.js";
import { speak, t } from "./text.js";
import { hear } from "./told.js";

const THEMES = ["auto", "light", "dark"];
const YEAR = 31_536_000;
const WIDE = matchMedia("(min-width: 80em)");
const root = document.documentElement;

/** The boot object, with everything that reads it told. */
export function begin() {
  const boot = JSON.parse(document.getElementById("boot").textContent);
  speak(boot);
  hear(boot);
  identify(boot);
  iconsAt(`${boot.urls.static}icons.svg`);
  applyTheme(boot.theme);
  document.addEventListener("click", onClick);
  document.addEventListener("change", (event) => event.target.name === "theme" && setTheme(event.target.value));
  watchDock();
  return boot;
}

// ── this browser's settings ─────────────────────────────────────────────────────────────────────

export const prefs = {
  get(name, otherwise) {
    try {
      return localStorage.getItem(name) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(name, value);
    } catch {
      // storage is closed: the setting holds for this page
    }
  },
};

function setTheme(theme) {
  applyTheme(theme);
  document.cookie = `theme=${theme}; path=/; max-age=${YEAR}; SameSite=Lax`;
}

function applyTheme(theme) {
  root.dataset.theme = theme;
  const word = { auto: t("Theme: system"), light: t("Theme: light"), dark: t("Theme: dark") }[theme];
  for (const button of document.querySelectorAll("[data-theme-toggle]")) {
    button.setAttribute("aria-label", word);
    button.title = word;
  }
  for (const radio of document.querySelectorAll('input[name="theme"]')) radio.checked = radio.value === theme;
}

// ── clicks that belong to no part ───────────────────────────────────────────────────────────────

function onClick(event) {
  const on = (selector) => event.target.closest(selector);
  if (on("[data-theme-toggle]")) setTheme(THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length]);
  if (on("[data-copy]")) copyCode(on("[data-copy]"));
  const inspector = on("[data-inspector-toggle]");
  if (inspector && WIDE.matches) {
    event.preventDefault(); // wide: a column that hides; narrow: the browser opens the drawer
    const hide = root.dataset.inspector !== "hidden";
    root.dataset.inspector = hide ? "hidden" : "shown";
    inspector.setAttribute("aria-expanded", String(!hide));
  }
}

async function copyCode(button) {
  const text = button.closest("figure")?.querySelector("pre")?.textContent ?? "";
  button.textContent = (await copied(text)) ? t("Copied") : t("Not copied");
  setTimeout(() => (button.textContent = t("Copy")), 2000);
}

export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no permission, or not a secure context
  }
}

/** The decision bar of a card sticks just above the dock, however tall that is. */
function watchDock() {
  const dock = document.querySelector(".dock");
  if (dock) new ResizeObserver(() => root.style.setProperty("--dock-block", `${dock.offsetHeight}px`)).observe(dock);
}

// ── speaking ────────────────────────────────────────────────────────────────────────────────────

const status = document.getElementById("say-status");
const alert = document.getElementById("say-alert");

/** Once, to who cannot see the change. The same words twice are said twice. */
export function announce(text) {
  speakIn(status, text);
}

export function alarm(text) {
  speakIn(alert, text);
}

function speakIn(node, text) {
  node.textContent = "";
  setTimeout(() => (node.textContent = text), 60);
}

/** Under the bar, never over the dock; one with an action stays until it is closed. */
export function toast(text, { kind = "", icon = "check", action } = {}) {
  const close = iconButton("cross", t("Close"), { kind: "btn--quiet btn--small", onclick: () => node.remove() });
  const node = h("div", { class: kind ? `toast toast--${kind}` : "toast" }, glyph(icon), h("div", {}, text, action ?? null), close);
  document.getElementById("toasts").append(node);
  announce(text);
  if (!action) setTimeout(() => node.remove(), 6000);
}

// ── keys ────────────────────────────────────────────────────────────────────────────────────────

export const FIELDS = "input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]";

/** `ctx`: {press(card element, key), cards(), stop()}; single keys on decisions can be switched off. */
export function keys(ctx) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.ctrlKey && event.key === "." && !event.altKey && !event.metaKey) {
      event.preventDefault();
      ctx.stop?.();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.(FIELDS)) return;
    if (single(event.key, event.target, ctx)) event.preventDefault();
  });
}

function single(key, target, ctx) {
  if (key === "/") return toSearch();
  if (key === "?") return toggleHelp();
  if (key === "j" || key === "k") return step(key === "j" ? 1 : -1, ctx);
  const card = target.closest?.(".appr[data-open]");
  if (!card || !"aer".includes(key) || prefs.get("keys", "on") === "off") return false;
  return ctx.press(card, key);
}

function toSearch() {
  const search = document.querySelector(".search input");
  if (!search) return false;
  const side = document.getElementById("sessions");
  if (!side.checkVisibility()) side.showPopover();
  search.focus();
  return true;
}

function toggleHelp() {
  const help = document.getElementById("keys-help");
  if (!help) return false;
  help.togglePopover();
  return true;
}

function step(by, ctx) {
  const cards = ctx.cards();
  if (!cards.length) return false;
  const at = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[at < 0 ? (by > 0 ? 0 : cards.length - 1) : (at + by + cards.length) % cards.length];
  showCard(next);
  return true;
}

export function showCard(card) {
  card.scrollIntoView({ block: "start", behavior: "instant" });
  card.focus({ preventScroll: true });
}

export function openCards() {
  return [...document.querySelectorAll(".appr[data-open]")];
}

// ── small dialogs ───────────────────────────────────────────────────────────────────────────────

/** A question before something that is not undone at once; true when it was confirmed. `detail`: words, or nodes. */
export function confirmed(question, detail, yes) {
  const dialog = document.getElementById("ask");
  const done = (answer) => () => dialog.close(answer);
  replace(
    dialog,
    h("h2", { id: "ask-title" }, question),
    typeof detail === "string" ? h("p", { class: "small ink2" }, detail) : detail,
    h("div", { class: "btn-row" }, h("button", { type: "button", class: "btn btn--no", onclick: done("yes") }, yes), h("button", { type: "button", class: "btn", autofocus: true, onclick: done("no") }, t("Keep it"))),
  );
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** A menu under its button. */
export function menu(button, panel) {
  panel.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    const box = button.getBoundingClientRect();
    panel.style.insetBlockStart = `${box.bottom + 4}px`;
    panel.style.insetInlineEnd = `${innerWidth - box.right}px`;
  });
  panel.addEventListener("click", () => panel.hidePopover());
}
