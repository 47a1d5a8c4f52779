// Everything that waits for a decision, soonest first; what is alike can be decided together.
import { all, get, post } from "./api.js";
import { approvalCard } from "./approval.js";
import { levelView } from "./approval-parts.js";
import { attention } from "./attention.js";
import { FIELDS, alarm, announce, begin, keys, openCards, prefs, showCard, toast } from "./chrome.js";
import { glyph, h, reconcile, replace, say } from "./dom.js";
import { inboxFilter, triggerWord } from "./inbox-filter.js";
import { batchable, decidedMark, soonest, tally, together } from "./model.js";
import { reachOf } from "./scope.js";
import { decisionTitle, plain } from "./sentences.js";
import { sessionList } from "./sessions.js";
import { clock, cut, day, listed, midnight, moment, n, t } from "./text.js";
import { told } from "./told.js";

const RELOAD_MS = 5000;
const MOST_DECIDED = 100;
const boot = begin();
const $ = (id) => document.getElementById(id);
const attend = attention(boot.urls.static);
const chosen = new Set();
const filter = inboxFilter($("filter"), () => show());
let waiting = []; // everything
let pending = []; // what the filter lets through
let current = null; // {id, card}
let first = true;

const list = sessionList(
  { groups: $("groups"), search: $("search"), count: $("inbox-count"), empty: $("no-sessions"), archive: $("archive") },
  { current: null, onRunning: () => {}, onWaiting: (count) => attend.waiting(count) },
);

async function load() {
  try {
    const [open, recent] = await Promise.all([all("/api/approvals?status=pending"), get(`/api/approvals?limit=${MOST_DECIDED}`)]);
    draw(open.sort(soonest), decidedToday(recent.items));
  } catch (error) {
    say($("summary"), error.unsent ? t("The server does not answer. Trying again.") : error.message);
  }
}

function decidedToday(items) {
  const start = midnight(new Date());
  return items.filter((item) => item.status !== "pending" && item.resolved_at && Date.parse(item.resolved_at) >= start).sort((one, other) => other.resolved_at.localeCompare(one.resolved_at));
}

function draw(open, decided) {
  const fresh = open.filter((item) => !waiting.some((each) => each.id === item.id));
  waiting = same(waiting, open);
  say($("summary"), waiting.length ? n(waiting.length, "{n} decision waits for you", "{n} decisions wait for you") : t("Nothing waits for you."));
  reconcile($("decided"), decided, (item) => item.id, (item) => ({ node: decidedRow(item) }));
  $("decided-part").hidden = decided.length === 0;
  for (const item of waiting) attend.notify(item.notices > 1 ? `${item.id}/${item.notices}` : item.id, plain(decisionTitle(item)));
  if (!first && fresh.length) announce(n(fresh.length, "{n} new decision waits for you", "{n} new decisions wait for you"));
  first = false;
  show();
}

/** The list as the filter wants it. */
function show() {
  filter.offer(waiting);
  pending = waiting.filter(filter.keep);
  for (const id of chosen) if (!pending.some((item) => item.id === id)) chosen.delete(id);
  reconcile($("pending"), pending, (item) => item.id, pendingRow);
  $("pending-part").hidden = pending.length === 0;
  $("nothing").hidden = waiting.length > 0;
  $("filtered").hidden = pending.length > 0 || waiting.length === 0;
  if (current && !waiting.some((item) => item.id === current.id)) refresh(current.id);
  if (!current && pending.length && matchMedia("(min-width: 80em)").matches) select(asked() ?? pending[0], false);
  drawBatch();
}

function asked() {
  return pending.find((item) => `#approval-${item.id}` === location.hash);
}

/** Rows that say the same stay the same objects, so that nothing is drawn anew. */
function same(before, after) {
  return after.map((item) => before.find((each) => each.id === item.id && JSON.stringify(each) === JSON.stringify(item)) ?? item);
}

// ── rows ────────────────────────────────────────────────────────────────────────────────────────

function pendingRow(approval) {
  const title = plain(decisionTitle(approval));
  const can = batchable(approval);
  const box = h("input", { type: "checkbox", disabled: !can, "aria-label": can ? t("Select: {title}", { title }) : t("Decide this one by itself: {title}", { title }) });
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(approval.id);
    else chosen.delete(approval.id);
    drawBatch();
  });
  const link = h("a", { href: `#approval-${approval.id}` }, decisionTitle(approval));
  link.addEventListener("click", (event) => {
    event.preventDefault();
    select(approval, true);
  });
  const meta = [levelView(approval.risk), h("span", {}, approval.session_title || t("Untitled")), approval.workspace_name ? h("span", {}, approval.workspace_name) : null];
  const origin = [h("span", {}, cameFrom(approval)), h("time", { datetime: approval.created_at }, askedAt(approval.created_at))];
  const node = h("li", { class: "row", "data-id": approval.id }, box, h("p", { class: "row__t" }, link), h("p", { class: "row__e", "data-until": approval.expires_at ?? "" }, leftOf(approval)), h("p", { class: "row__m" }, meta), h("p", { class: "row__m" }, origin));
  return { node };
}

/** By whom or by what its task was asked for: several of one webhook are told apart by the time. */
function cameFrom({ trigger, trigger_name: name }) {
  return name ? t("{trigger} “{name}”", { trigger: triggerWord(trigger), name }) : triggerWord(trigger);
}

function askedAt(iso) {
  return Date.parse(iso) >= midnight(new Date()) ? moment(iso) : day(iso);
}

function leftOf({ expires_at: until }) {
  return until ? t("{time} left", { time: clock((Date.parse(until) - Date.now()) / 1000) }) : t("No time limit");
}

function decidedRow(approval) {
  const [symbol, kind] = decidedMark(approval.status);
  return h(
    "li",
    { class: "row" },
    h("span", { class: kind ? `mark mark--${kind}` : "mark" }, glyph(symbol)),
    h("p", { class: "row__t" }, h("a", { href: `/c/${approval.session_id}` }, decisionTitle(approval))),
    h("p", { class: "row__e" }, day(approval.resolved_at)),
    h("p", { class: "row__m" }, h("span", {}, decidedWords(approval))),
  );
}

function decidedWords(approval) {
  const who = approval.resolved_by === boot.user.username ? t("you") : (approval.resolved_by ?? t("Somebody"));
  if (approval.status === "expired") return t("Expired: nobody answered in time");
  if (approval.status === "stale") return t("The file changed; it was asked again");
  if (approval.status === "cancelled") return t("The task ended before anybody decided");
  const did = didWords(approval, who);
  return listed(did, reachOf(approval), approval.edited_arguments && t("with an edit"), approval.comment && `“${approval.comment}”`);
}

function didWords({ kind, status, answer }, who) {
  if (kind === "question") return status === "approved" ? t("Answered by {who}: “{answer}”", { who, answer: cut(answer, 200) }) : t("{who} let it decide", { who });
  return status === "approved" ? t("Approved by {who}", { who }) : t("Rejected by {who}", { who });
}

setInterval(() => {
  for (const node of document.querySelectorAll("[data-until]")) {
    const until = node.dataset.until;
    if (!until) continue;
    say(node, leftOf({ expires_at: until }));
    node.classList.toggle("row__e--soon", Date.parse(until) - Date.now() < 300_000);
  }
}, 1000);

// ── the card beside the list ────────────────────────────────────────────────────────────────────

const ctx = { canDecide: true, announce, alert: alarm, onDecided: () => decided() };

function select(approval, byHand) {
  if (current?.id !== approval.id) {
    current?.card.end();
    const card = approvalCard(approval, { ...ctx, canDecide: approval.can_decide !== false });
    current = { id: approval.id, card };
    say($("preview-title"), approval.session_title || t("Untitled"));
    const open = $("preview-open");
    open.hidden = false;
    open.href = `/c/${approval.session_id}#approval-${approval.id}`;
    replace($("preview"), card.node);
  }
  for (const row of document.querySelectorAll("#pending .row")) row.toggleAttribute("data-current", row.dataset.id === approval.id);
  if (!byHand) return;
  const side = $("inspector");
  if (!side.checkVisibility()) side.showPopover();
  current.card.node.focus({ preventScroll: true });
}

/** It is no longer pending: the card says why, without its buttons. */
async function refresh(id) {
  try {
    const approval = await get(`/api/approvals/${id}`);
    if (current?.id === id) current.card.update(approval);
  } catch {
    // the next load tries again
  }
}

async function decided() {
  const at = pending.findIndex((item) => item.id === current?.id);
  await Promise.all([load(), list.load()]);
  const next = pending[Math.min(at, pending.length - 1)];
  if (next) {
    select(next, true);
  } else {
    const side = $("inspector");
    if (side.matches(":popover-open")) side.hidePopover();
    $("main").focus();
  }
}

// ── several at once ─────────────────────────────────────────────────────────────────────────────

function drawBatch() {
  const items = pending.filter((item) => chosen.has(item.id));
  const fits = together(items);
  $("batch").hidden = items.length === 0;
  say($("batch-words"), fits ? n(items.length, "{n} selected. Each is logged as its own decision.", "{n} selected, alike. Each is logged as its own decision.") : t("Select only what the same tool does in one folder."));
  say($("batch-approve"), n(items.length, "Approve {n}", "Approve {n}"));
  say($("batch-reject"), n(items.length, "Reject {n}", "Reject {n}"));
  for (const id of ["batch-approve", "batch-reject"]) $(id).disabled = !fits;
  const box = $("select-all");
  const alike = pending.filter(batchable);
  box.disabled = !together(alike);
  box.checked = alike.length > 0 && alike.every((item) => chosen.has(item.id));
}

/** Selected and alike: one key for all of them, wherever the focus is. */
function batchKey(key) {
  const button = { a: $("batch-approve"), r: $("batch-reject") }[key];
  if (!button || chosen.size === 0 || button.disabled) return false;
  button.click();
  return true;
}

function toggleCurrent() {
  const box = document.querySelector("#pending .row[data-current] input");
  if (!box || box.disabled) return;
  box.click();
  announce(box.checked ? t("Selected.") : t("No longer selected."));
}

async function decideAll(decision) {
  const ids = pending.filter((item) => chosen.has(item.id)).map((item) => item.id);
  for (const id of ["batch-approve", "batch-reject"]) $(id).disabled = true;
  try {
    const { results } = await post("/api/approvals/resolve", { results: ids.map((id) => ({ approval_id: id, decision })) });
    const { good, bad, noted } = tally(results);
    const why = bad ? told(bad.error.message) : t("Your yes is noted. One more person must agree.");
    toast(bad || noted ? t("{good} of {all} decided. {why}", { good, all: results.length, why }) : n(good, "{n} decided.", "{n} decided."), { kind: bad ? "fail" : "ok", icon: bad ? "cross" : "check" });
    chosen.clear();
    for (const box of document.querySelectorAll("#pending input")) box.checked = false;
  } catch (error) {
    toast(error.unsent ? t("Your decisions did not reach the server. Nothing was decided.") : error.message, { kind: "fail", icon: "cross" });
  }
  await load();
}

$("batch-approve").addEventListener("click", () => decideAll("approve"));
$("batch-reject").addEventListener("click", () => decideAll("reject"));
$("select-all").addEventListener("change", (event) => {
  for (const item of pending.filter(batchable)) {
    if (event.target.checked) chosen.add(item.id);
    else chosen.delete(item.id);
  }
  for (const row of document.querySelectorAll("#pending .row")) row.querySelector("input").checked = chosen.has(row.dataset.id);
  drawBatch();
});

const notify = $("notify");
notify.hidden = !globalThis.Notification || prefs.get("notify", "off") === "on";
notify.addEventListener("click", async () => {
  if ((await Notification.requestPermission()) !== "granted") return toast(t("The browser does not allow notifications for this page."));
  prefs.set("notify", "on");
  notify.hidden = true;
  return toast(t("This browser will tell you when a decision waits."));
});

keys({ press: (node, key) => (chosen.size > 0 ? batchKey(key) : current?.card.node === node && current.card.press(key)), cards: () => openCards() });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches(FIELDS)) return;
  if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (prefs.get("keys", "on") === "off") return;
  else if (event.key === "x") toggleCurrent();
  else if (!event.target.closest(".appr")) batchKey(event.key);
});

function step(by) {
  const next = pending[pending.findIndex((item) => item.id === current?.id) + by];
  if (!next) return;
  select(next, true);
  showCard(current.card.node);
}

setInterval(() => document.hidden || load(), RELOAD_MS);
document.addEventListener("visibilitychange", () => document.hidden || load());
load();
