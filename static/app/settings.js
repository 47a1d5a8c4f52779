// Settings: what belongs to this browser (theme, keys, notifications) and the reader's own tokens.
import { all, api, post } from "./api.js";
import { attention } from "./attention.js";
import { begin, confirmed, copied, keys, openCards, prefs, toast } from "./chrome.js";
import { button, cell, h, replace } from "./dom.js";
import { ruleList } from "./rules.js";
import { sessionList } from "./sessions.js";
import { day, listed, t } from "./text.js";

const boot = begin();
const $ = (id) => document.getElementById(id);
const attend = attention(boot.urls.static);

sessionList(
  { groups: $("groups"), search: $("search"), count: $("inbox-count"), empty: $("no-sessions"), archive: $("archive") },
  { current: null, onRunning: () => {}, onWaiting: (count) => attend.waiting(count) },
);
keys({ press: () => false, cards: openCards });

// ── this browser ────────────────────────────────────────────────────────────────────────────────

const single = $("single-keys");
single.checked = prefs.get("keys", "on") === "on";
single.addEventListener("change", () => prefs.set("keys", single.checked ? "on" : "off"));

const notify = $("notify-me");
notify.checked = prefs.get("notify", "off") === "on" && globalThis.Notification?.permission === "granted";
notify.disabled = !globalThis.Notification;
notify.addEventListener("change", async () => {
  const granted = notify.checked && (await Notification.requestPermission()) === "granted";
  if (notify.checked && !granted) toast(t("The browser does not allow notifications for this page."));
  notify.checked = granted;
  prefs.set("notify", granted ? "on" : "off");
});

$("language").addEventListener("change", (event) => event.target.form.requestSubmit());

// ── tokens ──────────────────────────────────────────────────────────────────────────────────────

async function load() {
  try {
    const items = (await all("/api/tokens")).filter((token) => !token.revoked_at);
    replace($("tokens-rows"), items.map(row));
    $("tokens-none").hidden = items.length > 0;
    $("tokens-table").hidden = items.length === 0;
  } catch (error) {
    failed(error);
  }
}

function row(token) {
  const scopes = listed(...token.scopes.map((scope) => ({ read: t("read"), write: t("write"), approve: t("approve") })[scope] ?? scope));
  const revoke = button(t("Revoke"), { kind: "btn--quiet btn--small btn--no", "aria-label": t("Revoke {name}", { name: token.name || token.prefix }), onclick: () => remove(token) });
  return h(
    "tr",
    { role: "row" },
    cell(t("Token"), token.name || "–"),
    cell(t("Starts with"), h("code", {}, `${token.prefix}…`)),
    cell(t("May"), scopes),
    cell(t("Last used"), token.last_used_at ? day(token.last_used_at) : t("never")),
    cell(t("Ends"), token.expires_at ? new Date(token.expires_at).toLocaleDateString(boot.language, { dateStyle: "medium" }) : t("never")),
    h("td", { role: "cell" }, revoke),
  );
}

async function remove(token) {
  const name = token.name || token.prefix;
  if (!(await confirmed(t("Revoke “{name}”?", { name }), t("Whatever uses it is refused from now on."), t("Revoke")))) return;
  try {
    await api("DELETE", `/api/tokens/${token.id}`);
  } catch (error) {
    failed(error);
  }
  await load();
}

$("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const scopes = [...form.querySelectorAll("[name=scope]:checked")].map((box) => box.value);
  const days = Number(form.elements.days.value);
  try {
    const made = await post("/api/tokens", { name: form.elements.name.value.trim(), scopes, ...(days ? { expires_in_days: days } : {}) });
    showNew(made.token);
    form.reset();
    await load();
  } catch (error) {
    failed(error);
  }
});

/** Shown this once: the database has only its hash. */
function showNew(token) {
  const copy = button(t("Copy"), { icon: "copy", kind: "btn--small", onclick: async () => toast((await copied(token)) ? t("Copied.") : t("This browser does not let the page copy.")) });
  const box = $("token-new");
  replace(box, h("h3", {}, t("Your new token")), h("p", {}, t("It is shown this once. Keep it like a password.")), h("p", { class: "mono wrap" }, token), h("div", { class: "btn-row" }, copy));
  box.hidden = false;
  box.focus();
}

function failed(error) {
  toast(error.unsent ? t("The server did not answer. Nothing was changed.") : error.message, { kind: "fail", icon: "cross" });
}

load();
ruleList({ rows: $("rules-rows"), table: $("rules-table"), none: $("rules-none") }, { workspaces: boot.workspaces, failed });
