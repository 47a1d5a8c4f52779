// How a task can end other than well, and what to do then.
import { button, glyph, h } from "./dom.js";
import { clock, money, n, number, short, time, t } from "./text.js";
import { told } from "./told.js";

export function endingView(task, ctx) {
  if (task.status === "queued") return h("div", { class: "entry entry--bare" }, h("p", { class: "entry__at" }), h("p", { class: "small muted" }, t("Queued. It begins as soon as a place is free.")));
  if (!task.ended || task.status === "completed") return task.status === "completed" ? (cutOff(task) ?? plainAnswer(task)) : null;
  const made = { failed, cancelled, budget_exceeded: budget }[task.status](task, ctx);
  return h("div", { class: "entry entry--bare" }, h("p", { class: "entry__at" }), h("div", {}, made));
}

/** An answer that ends before its end. */
function cutOff(task) {
  const reason = task.items.findLast((item) => item.kind === "step")?.finishReason;
  const why = {
    length: () => t("The model had used up its output. Ask it to go on, or raise max_tokens in its profile."),
    content_filter: () => t("The provider's content filter stopped it. Say it differently, or choose another model."),
  }[reason];
  if (!why) return null;
  return h("div", { class: "entry entry--bare" }, h("p", { class: "entry__at" }), h("div", {}, note("wait", "gauge", t("The answer is cut off"), [why()], [])));
}

/** An answer that no message carried (it was put together elsewhere). */
function plainAnswer(task) {
  const last = task.items.findLast((item) => item.kind === "step");
  if (!task.finalAnswer || last?.blocks.some((block) => block.kind === "text")) return null;
  return h("div", { class: "entry" }, h("p", { class: "entry__at" }), h("span", { class: "entry__node" }), h("div", { class: "md" }, h("pre", { class: "plain" }, task.finalAnswer)));
}

function note(kind, symbol, title, lines, buttons) {
  return h("div", { class: kind ? `note note--${kind}` : "note" }, glyph(symbol), h("h3", {}, title), lines.filter(Boolean).map((line) => h("p", {}, line)), buttons.filter(Boolean).length ? h("div", { class: "btn-row" }, buttons) : null);
}

function retryButton(task, ctx, label, kind = "") {
  return ctx.canWrite ? button(label, { icon: "retry", kind: `btn--small ${kind}`, onclick: (event) => ctx.retry(task, event.currentTarget) }) : null;
}

function failed(task, ctx) {
  const { code = "", message = "", hint = "" } = task.error ?? {};
  const missing = code === "no_model";
  const title = missing ? t("No model is set up") : t("It could not go on");
  return note("fail", missing ? "chip" : "cross", title, [told(message), told(hint), keptWords(task)], [retryButton(task, ctx, t("Retry")), ...otherModel(task, ctx)]);
}

/** A retry may ask another model; the session's stays. */
function otherModel(task, ctx) {
  if (!ctx.canWrite || !ctx.models.length) return [];
  const select = h("select", { class: "input", "aria-label": t("Model for the retry") }, ctx.models.map(({ id, name }) => h("option", { value: id }, name)));
  return [button(t("Retry with"), { kind: "btn--small", onclick: (event) => ctx.retry(task, event.currentTarget, select.value) }), select];
}

function keptWords(task) {
  const steps = task.items.filter((item) => item.kind === "step" && item.finishedAt).length;
  return steps ? t("Nothing was lost; a retry continues at step {n}.", { n: number(steps + 1) }) : "";
}

function cancelled(task, ctx) {
  const who = task.endedBy === ctx.username ? t("You stopped it") : t("{who} stopped it", { who: task.endedBy || t("Somebody") });
  const last = task.items.findLast((item) => item.kind === "step");
  const where = last ? t("{time}, during step {n}. What had been written stays.", { time: time(task.endedAt), n: number(last.number) }) : t("{time}, before it began. Nothing was done.", { time: time(task.endedAt) });
  return note("", "stop", who, [where], [last ? retryButton(task, ctx, t("Go on from here")) : null]);
}

function budget(task, ctx) {
  const { which, used, limit, message } = task.budget;
  const title = { steps: t("Stopped at the step limit"), seconds: t("Stopped at the time limit"), tokens: t("Stopped at the token limit"), cost: t("Stopped at the cost limit") }[which] ?? t("Limit reached");
  const text = t("{used} of {limit} used. The work so far is kept.", { used: figure(which, used), limit: figure(which, limit) });
  const more = ctx.canWrite ? button(t("Go on with as much again"), { kind: "btn--small btn--go", onclick: (event) => ctx.retry(task, event.currentTarget) }) : null;
  return note("wait", "gauge", title, [which in FIGURES ? text : told(message)], [more]);
}

const FIGURES = { steps: (value) => n(value, "{n} step", "{n} steps"), seconds: (value) => clock(value), tokens: (value) => short(value), cost: (value) => money(value) };

function figure(which, value) {
  return (FIGURES[which] ?? ((given) => number(given, 2)))(value);
}
