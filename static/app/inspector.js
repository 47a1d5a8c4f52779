// The instrument panel of the current task: what it may still use, where the time went, which files it touched.
import { get } from "./api.js";
import { parseDiff, countsOf } from "./diff.js";
import { glyph, h, replace, svg } from "./dom.js";
import { callState, callsOf, currentTask, workedMs } from "./model.js";
import { own } from "./reducer-task.js";
import { callTitle, decisionTitle, fileIcon, plain } from "./sentences.js";
import { clock, money, n, number, seconds, short, size, t } from "./text.js";
import { markOf } from "./calls.js";

const WIDTH = 320;
const MOST_ROWS = 200;

/** `parts`: {budget, timeline, timelineCount, files, filesCount}. */
export function inspector(parts) {
  let drawn = null;
  let due = 0;
  let looked = null; // the ended task whose files were looked at
  let found = new Map(); // artifact -> what became of it since
  const shownTask = (state) => currentTask(state);

  function draw(state) {
    const task = shownTask(state);
    const now = Date.now();
    for (const part of [parts.budget, parts.timeline, parts.files]) part.closest(".sec").hidden = !task;
    if (!task || (task === drawn && task.ended)) return;
    if (task === drawn && now < due) return;
    if (!task.ended && now < due && task.id === drawn?.id) return; // twice a second is enough for an instrument
    drawn = task;
    due = now + 500;
    replace(parts.budget, budgetOf(task, now));
    drawTimeline(parts, task, now);
    drawFiles(parts, task, found);
    if (task.ended && task.artifacts.length && looked !== task.id) look();
  }

  /** The log has what a run left, not what became of it: somebody may have undone a call since. */
  async function look() {
    const { id } = drawn;
    looked = id;
    try {
      const { items } = await get(`/api/tasks/${id}/artifacts`);
      if (drawn.id !== id) return;
      found = new Map(items.map((item) => [item.id, item.state]));
      drawFiles(parts, drawn, found);
    } catch {
      // as the log has them; a download says what became of its file
    }
  }

  return { draw, force: () => (due = 0), undone: () => drawn?.artifacts.length && look() };
}

// ── budget ──────────────────────────────────────────────────────────────────────────────────────

function budgetOf(task, now) {
  const { limits, usage } = task;
  const steps = task.items.filter((item) => item.kind === "step" && item.callAt).length;
  const worked = workedMs(task, now) / 1000;
  const tokens = usage.input_tokens + usage.output_tokens;
  return [
    gauge(t("Steps"), steps, limits.steps, number),
    gauge(t("Working time"), worked, limits.seconds, clock),
    gauge(t("Tokens"), tokens, limits.tokens, (value) => `${usage.estimated ? "≈" : ""}${short(value)}`),
    task.cost === null && limits.cost == null ? null : gauge(t("Cost"), task.cost ?? 0, limits.cost, money),
  ];
}

function gauge(name, value, limit, write) {
  const text = limit == null ? t("no limit") : t("of {limit}", { limit: write(limit) });
  const meter = limit == null ? null : h("span", {}, meterOf(name, value, limit, write), h("span", { class: "ticks" }));
  return h("div", {}, h("dt", {}, name), h("dd", {}, h("span", {}, h("b", {}, write(value)), " ", h("small", {}, text)), meter));
}

function meterOf(name, value, limit, write) {
  const label = `${name}: ${t("{used} of {limit}", { used: write(value), limit: write(limit) })}`;
  return h("meter", { class: "gauge", "aria-label": label, min: 0, max: limit, high: limit * 0.85, optimum: 0, value: Math.min(value, limit) });
}

// ── timeline: working time only, waits for people hatched and off the clock ─────────────────────

function drawTimeline(parts, task, now) {
  const rows = rowsOf(task, now).slice(-MOST_ROWS);
  const total = Math.max(1000, ...rows.flatMap((row) => row.bars.map((bar) => bar.at + bar.length)));
  const scale = WIDTH / total;
  const steps = task.items.filter((item) => item.kind === "step").length;
  const calls = Object.keys(task.calls).length;
  parts.timelineCount.textContent = `${n(steps, "{n} step", "{n} steps")} · ${n(calls, "{n} call", "{n} calls")}`;
  const whole = total / 1000;
  replace(
    parts.timeline,
    h("p", { class: "tl tl__axis", "aria-hidden": "true" }, h("span", {}), h("span", {}, h("span", {}, "0"), h("span", {}, brief(whole / 2).replace(/ s$/, "")), h("span", {}, brief(whole))), h("span", {})),
    h("ol", { class: "tl", "aria-label": t("Steps, calls and waits with their durations") }, rows.map((row) => rowOf(row, scale))),
    h("p", { class: "legend" }, legend("model", t("Model")), legend("tool", t("Tool")), legend("wait", t("Waiting for a person (not on the clock)"))),
  );
}

/** 18 s, 1:10: short, so that it stands above or beside its bar. */
function brief(value) {
  return value < 60 ? seconds(value) : clock(value);
}

/** Working time at a moment: waits are taken out of the axis. */
function workClock(task) {
  const spans = task.spans.map((span) => [Date.parse(span.from), span.to ? Date.parse(span.to) : Infinity]);
  return (at) => spans.reduce((total, [from, to]) => total + Math.max(0, Math.min(at, to) - from), 0);
}

function rowsOf(task, now) {
  const at = workClock(task);
  const rows = [];
  for (const item of task.items) {
    if (item.kind === "step") rows.push(...stepRows(item, task, at, now));
    else if (item.kind === "approval" && !aboutCall(task.approvals[item.id], task)) rows.push(waitRow(task.approvals[item.id], at, now));
  }
  return rows;
}

/** Then the call's own row tells of the wait. */
function aboutCall(approval, task) {
  return Boolean(own(task.calls, approval.tool_call_id));
}

function stepRows(step, task, at, now) {
  // What got no reply took its time with all its attempts; of the others the one that counted is drawn.
  const replied = step.durationMs !== undefined;
  const start = Date.parse((replied && step.callAt) || step.startedAt);
  const length = replied ? step.durationMs : Math.max(0, at(now) - at(start));
  const bars = [{ kind: "b-model", at: at(start), length }];
  const rows = [{ kind: "step", label: t("Step {n}", { n: number(step.number) }), bars, text: length ? brief(length / 1000) : "" }];
  for (const call of callsOf(step, task)) rows.push(callRow(call, task, at, now));
  return rows;
}

function callRow(call, task, at, now) {
  const state = callState(call, task);
  const asked = call.approvals.map((id) => task.approvals[id]);
  const waits = asked.map((approval) => waitBar(approval, at));
  if (!call.startedAt) {
    const text = state === "wait" ? waited(asked.at(-1), now) : t("not run");
    return { kind: "call", state, label: labelOf(call, task), bars: waits, text };
  }
  const start = at(Date.parse(call.startedAt));
  const length = call.finishedAt ? (call.durationMs ?? 0) : Math.max(0, at(now) - start);
  const bars = [...waits, { kind: state === "failed" ? "b-fail" : "b-tool", at: start, length }];
  return { kind: "call", state, label: labelOf(call, task), bars, text: `${brief(length / 1000)}${call.finishedAt ? "" : " …"}` };
}

function labelOf(call, task) {
  return plain(callTitle(call, task));
}

function waitRow(approval, at, now) {
  return { kind: "wait", state: "wait", label: plain(decisionTitle(approval)), bars: [waitBar(approval, at)], text: waited(approval, now) };
}

function waitBar(approval, at) {
  return { kind: "b-wait", at: at(Date.parse(approval.created_at)), length: 0 };
}

function waited(approval, now) {
  const until = approval.resolved_at ? Date.parse(approval.resolved_at) : now;
  return `${clock((until - Date.parse(approval.created_at)) / 1000)}${approval.status === "pending" ? " …" : ""}`;
}

function rowOf(row, scale) {
  const mark = row.kind === "step" ? null : markOf(row.state);
  return h(
    "li",
    { class: row.kind === "step" ? "step" : "" },
    h("span", { class: "tl__l", title: row.label }, mark, h("span", {}, row.label)),
    svg("svg", { class: "b", viewBox: `0 0 ${WIDTH} 24`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...row.bars.map((bar) => barOf(bar, scale))),
    h("span", { class: "d" }, row.text),
  );
}

function barOf({ kind, at, length }, scale) {
  const wait = kind === "b-wait";
  const wide = wait ? 14 : Math.max(2, length * scale);
  const high = wait ? 8 : 6;
  return svg("rect", { class: kind, x: Math.min(at * scale, WIDTH - wide), y: (24 - high) / 2, width: wide, height: high });
}

function legend(kind, text) {
  const box = kind === "wait" ? { y: 1, width: 12, height: 8 } : { y: 2, width: 12, height: 6 };
  return h("span", {}, svg("svg", { viewBox: "0 0 12 10", "aria-hidden": "true" }, svg("rect", { class: `b-${kind}`, ...box })), text);
}

// ── files ───────────────────────────────────────────────────────────────────────────────────────

function drawFiles(parts, task, found) {
  const proposed = Object.values(task.approvals).filter((approval) => approval.status === "pending" && pathOf(approval));
  const made = task.artifacts;
  const gone = made.filter(({ artifact_id: id }) => found.get(id) === "gone").length;
  const left = made.length - gone;
  const texts = [proposed.length ? n(proposed.length, "{n} proposed", "{n} proposed") : "", left ? n(left, "{n} made", "{n} made") : "", gone ? n(gone, "{n} gone", "{n} gone") : ""].filter(Boolean);
  parts.filesCount.textContent = texts.join(" · ");
  if (!proposed.length && !made.length) {
    replace(parts.files, h("p", { class: "hint" }, t("Nothing written yet.")));
    return;
  }
  replace(parts.files, h("ul", { class: "flist" }, proposed.map(proposedRow), made.map((each) => madeRow(each, found.get(each.artifact_id)))));
}

/** The file that a call would write; a command's evidence is no file. */
function pathOf({ diff, arguments: args }) {
  return diff ? parseDiff(diff).path || args?.path || "" : "";
}

function proposedRow(approval) {
  const found = parseDiff(approval.diff);
  const path = pathOf(approval);
  return h("li", {}, glyph("pencil"), h("a", { href: `#approval-${approval.id}`, title: path }, path), h("span", { class: "tag" }, countsOf(found), ` ${t("proposed")}`));
}

function madeRow({ artifact_id: id, path, size: bytes, sha256 }, state) {
  if (state === "gone") return h("li", {}, glyph(fileIcon(path)), h("s", { title: path }, path), h("span", { class: "tag" }, t("gone")));
  if (state === "changed") return h("li", {}, glyph(fileIcon(path)), h("span", { title: path }, path), h("span", { class: "tag" }, t("changed since")));
  const download = h("a", { class: "btn btn--quiet btn--icon btn--small", href: `/api/artifacts/${id}`, download: "", "aria-label": t("Download {path}, {size}", { path, size: size(bytes) }), title: `SHA-256 ${sha256}` }, glyph("down"));
  return h("li", {}, glyph(fileIcon(path)), h("a", { href: `/artifacts/${id}/view`, title: path }, path), h("span", { class: "tag" }, size(bytes), " ", download));
}

