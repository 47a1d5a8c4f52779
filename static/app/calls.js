// The calls of one reply: a card each, in pairs, in the order asked. What is inside a card is made when it is opened.
import { get } from "./api.js";
import { glyph, h, reconcile, replace, say } from "./dom.js";
import { callState, callsOf } from "./model.js";
import { callTitle, outcome, unmarked } from "./sentences.js";
import { cut, n, number, seconds, size, t } from "./text.js";
import { told } from "./told.js";
import { undoView } from "./undo.js";

const MARKS = {
  done: ["check", "ok"],
  run: ["run", "run"],
  failed: ["cross", "fail"],
  blocked: ["deny", "risk"],
  wait: ["flag", "wait"],
  skipped: ["stop", ""],
  next: ["queued", ""],
};
const PREVIEW_LINES = 12;

export function stateWord(state) {
  return {
    done: t("Done"), run: t("Running"), failed: t("Failed"), blocked: t("Blocked by policy"),
    wait: t("Waits for you"), skipped: t("Not run"), next: t("Next"),
  }[state];
}

export function markOf(state) {
  const [symbol, kind] = MARKS[state];
  return h("span", { class: kind ? `mark mark--${kind}` : "mark" }, glyph(symbol), h("span", { class: "sr" }, `${stateWord(state)}:`));
}

/** {node, update({step, task})}: the frame around a step's calls. */
export function callsView(first) {
  const title = h("h3", {});
  const count = h("span", {});
  const grid = h("div", { class: "calls" });
  const node = h("section", {}, h("div", { class: "calls__h" }, title, count), grid);

  function update({ step, task }) {
    const calls = callsOf(step, task);
    say(title, t("Step {n}", { n: number(step.number) }));
    say(count, countText(calls, task));
    grid.classList.toggle("calls--pair", calls.length > 1);
    reconcile(grid, calls.map((call) => cached(call, task)), (item) => item.call.id, callView);
  }

  update(first);
  return { node, update };
}

/** One object per (call, state): a card is redrawn when either changes, and only then. */
const seen = new WeakMap();

function cached(call, task) {
  const state = callState(call, task);
  const before = seen.get(call);
  if (before?.state === state) return before;
  const item = { call, state, task: task.id, title: callTitle(call, task) };
  seen.set(call, item);
  return item;
}

function countText(calls, task) {
  const waiting = calls.filter((call) => callState(call, task) === "wait").length;
  const others = calls.length - waiting;
  const parts = [];
  if (others) parts.push(n(others, "{n} call", "{n} calls"));
  if (waiting) parts.push(n(waiting, "{n} needs you", "{n} need you"));
  return parts.join(" · ");
}

function callView(first) {
  const head = h("summary", {});
  const body = h("div", { class: "tool__body" });
  const node = h("details", { class: "tool" }, head, body);
  let item = first;
  let stale = true;

  const draw = () => {
    if (!node.open || !stale) return;
    replace(body, bodyOf(item));
    stale = false;
  };
  node.addEventListener("toggle", draw);

  function update(next) {
    item = next;
    stale = true;
    node.dataset.state = next.state;
    replace(head, headOf(next));
    draw();
  }

  update(first);
  return { node, update };
}

function headOf({ call, state, title }) {
  const line = outcome(call, state, call.progress);
  const { done, total } = call.progress ?? {};
  return [
    markOf(state),
    h("span", { class: "tool__t" }, title),
    h("span", { class: "tool__d" }, durationOf(call, state)),
    glyph("chev"),
    line && line.length ? h("span", { class: state === "failed" ? "tool__r tool__r--fail" : "tool__r" }, line) : null,
    state === "run" && total ? h("progress", { class: "gauge gauge--run gauge--thin", max: total, value: done ?? 0, "aria-label": t("Progress") }) : null,
  ];
}

function durationOf(call, state) {
  if (state === "run") return "…";
  if (state === "blocked" || state === "skipped") return t("not run");
  return call.finishedAt && call.startedAt ? seconds((call.durationMs ?? 0) / 1000) : "";
}

function bodyOf({ call, task }) {
  const parts = [h("div", {}, h("h4", {}, t("Arguments")), argumentsView(call.edited ?? call.arguments, call.raw))];
  if (call.edited) parts.push(h("p", { class: "hint" }, t("Edited by a person before it ran.")));
  if (call.problem) parts.push(h("p", { class: "small" }, told(call.problem)));
  if (call.finishedAt && call.content) parts.push(resultView(call, task));
  if (call.details?.diff) parts.push(h("div", {}, h("h4", {}, t("What changed in files")), h("pre", { class: "mono wrap", tabindex: "0" }, cut(call.details.diff, 20000))));
  parts.push(call.finishedAt ? undoView(call, task) : null, h("p", { class: "hint" }, t("Rule: {rule}", { rule: told(call.rule) })));
  return parts;
}

export function argumentsView(args, raw) {
  if (!args) return h("pre", { class: "plain", tabindex: "0" }, raw ?? "");
  const rows = Object.entries(args);
  if (!rows.length) return h("p", { class: "small muted" }, t("None"));
  return h("dl", { class: "kv" }, rows.flatMap(([name, value]) => [h("dt", { class: "mono" }, name), h("dd", { class: "mono wrap" }, shown(value))]));
}

function shown(value) {
  return cut(typeof value === "string" ? value : JSON.stringify(value), 2000);
}

function resultView(call, task) {
  const text = unmarked(call.content);
  const lines = text.split("\n");
  const whole = !call.truncated && lines.length <= PREVIEW_LINES;
  const title = h("span", {}, whole ? t("Result") : n(Math.min(lines.length, PREVIEW_LINES), "Result, first line", "Result, first {n} lines"));
  const pre = h("pre", { tabindex: "0", "aria-label": t("Result") }, lines.slice(0, PREVIEW_LINES).join("\n"));
  const more = whole ? null : h("button", { type: "button", class: "btn btn--quiet btn--small" }, t("Whole result"));
  more?.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const full = call.truncated ? await wholeResult(call, task) : text;
      pre.textContent = full;
      say(title, t("Result"));
      more.remove();
    } catch (error) {
      more.disabled = false;
      say(title, error.unsent ? t("The server did not answer.") : error.message);
    }
  });
  return h("figure", { class: "code" }, h("figcaption", {}, title, call.size ? h("span", { class: "muted" }, size(call.size)) : null, more), pre);
}

async function wholeResult(call, task) {
  const event = await get(call.url ?? `/api/tasks/${task}/events/${call.sequence}`);
  return unmarked(event.payload.content);
}
