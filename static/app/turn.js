// One turn of the log: the goal, what was done for it, the answer, and how it ended.
import { answerView } from "./answer.js";
import { approvalCard } from "./approval.js";
import { callsView } from "./calls.js";
import { glyph, h, reconcile, replace, say } from "./dom.js";
import { endingView } from "./endings.js";
import { goalView, saidView } from "./goal.js";
import { placeInLine } from "./line.js";
import { callsOf, coveredBy, decidable, decidedMark, entriesOf, pendingOf, stepMs, taskState } from "./model.js";
import { reachOf } from "./scope.js";
import { decisionTitle, plain } from "./sentences.js";
import { comma, cut, gap, listed, money, n, number, seconds, short, time, t } from "./text.js";
import { told } from "./told.js";

export function taskWord(state) {
  return {
    queued: t("Queued"), run: t("Running"), wait: t("Waits for you"), done: t("Done"),
    failed: t("Failed"), stopped: t("Stopped"), limit: t("Limit reached"),
  }[state];
}

/** {node, update({task, number})}. `ctx`: see thread.js. */
export function turnView(first, ctx) {
  const title = h("h2", { class: "sr", id: `turn-${first.task.id}` });
  const goal = goalEntry(first.task, ctx);
  const log = h("div", {});
  const ending = h("div", {});
  const foot = h("div", {});
  const node = h("section", { class: "turn", "aria-labelledby": title.id, "data-task": first.task.id }, title, goal, log, ending, foot);

  let line = null;

  function update({ task, number: position }) {
    const state = taskState(task);
    node.dataset.state = state;
    say(title, t("Turn {n}, {time}, {state}", { n: position, time: time(task.createdAt), state: taskWord(state) }));
    reconcile(log, withTask(entriesOf(task), task), (item) => item.entry.key, (item) => entryView(item, ctx));
    replace(ending, endingView(task, ctx));
    if (state === "queued") line ??= placeInLine(task);
    replace(foot, task.ended ? footOf(task, ctx) : state === "queued" ? line : null);
  }

  update(first);
  return { node, update };
}

/** Entries know their task: a call's state depends on both. */
function withTask(entries, task) {
  return entries.map((entry) => ({ entry, task }));
}

function entry({ at, mark, kind = "" }, ...content) {
  const symbol = mark ? glyph(mark.icon) : null;
  return h(
    "div",
    { class: `entry ${kind}`.trim() },
    h("p", { class: "entry__at" }, at ? h("time", { datetime: at }, time(at)) : null),
    h("span", { class: mark?.kind ? `entry__node mark--${mark.kind}` : "entry__node" }, symbol),
    ...content,
  );
}

function goalEntry(task, ctx) {
  const who = task.trigger === "chat" || task.trigger === "api" ? ctx.owner : task.trigger;
  return entry({ at: task.createdAt, kind: "entry--goal" }, h("div", { class: "goal" }, h("h3", { class: "sr" }, who), goalView(task.goal)));
}

function entryView(item, ctx) {
  return VIEWS[item.entry.kind](item, ctx);
}

const VIEWS = {
  fold: foldView,
  open: openStepView,
  approval: decisionView,
  said: ({ entry: { text, by, at } }) => ({
    node: entry({ at, kind: "entry--goal" }, h("div", { class: "goal goal--said" }, h("h3", { class: "sr" }, by), saidView(text))),
  }),
  recovered: ({ entry: { at } }) => noteLine(at, "retry", t("The server was restarted. It went on from the log; nothing was lost.")),
  compacted: compactedView,
  warning: ({ entry: { at, which, used, limit } }) =>
    noteLine(at, "gauge", t("{which}: {used} of {limit} used.", { which: limitWord(which), used: number(used, 2), limit: number(limit, 2) })),
};

export function limitWord(which) {
  return { steps: t("Steps"), seconds: t("Working time"), tokens: t("Tokens"), cost: t("Cost") }[which] ?? which;
}

function noteLine(at, symbol, text) {
  return { node: entry({ at, mark: { icon: symbol }, kind: "entry--bare" }, h("p", { class: "small ink2" }, text)) };
}

/** What a summary stands for: which steps, the summary itself, and the steps as they were. */
function compactedView({ entry: { at, summary, ...range } }, ctx) {
  const covered = coveredBy(range, ctx.state());
  const steps = h("div", { class: "fold__steps" });
  const inner = h("details", { class: "fold" }, h("summary", {}, glyph("chev"), t("The steps themselves")), steps);
  inner.addEventListener("toggle", () => {
    if (!inner.open || steps.childElementCount) return;
    steps.append(...covered.flatMap(({ task, steps: own }) => own.map((step) => stepView({ step, task }).node)));
  });
  const body = h("div", { class: "fold__body stack--s" }, h("h4", {}, t("Summary")), h("p", { class: "said" }, summary), covered.length ? inner : null);
  const fold = h("details", { class: "fold" }, h("summary", {}, glyph("chev"), coveredWords(covered)), body);
  return { node: entry({ at, mark: { icon: "book" }, kind: "entry--bare" }, fold) };
}

function coveredWords(covered) {
  if (!covered.length) return t("Earlier steps were summed up to make room. Nothing left the log.");
  const [first, last] = [covered[0], covered.at(-1)];
  const [from, to] = [number(first.steps[0].number), number(last.steps.at(-1).number)];
  if (first !== last) return t("Turn {a}, step {from} to turn {b}, step {to}: summed up to make room. Nothing left the log.", { a: number(first.turn), b: number(last.turn), from, to });
  return from === to ? t("Step {n} was summed up to make room. Nothing left the log.", { n: from }) : t("Steps {from} to {to} were summed up to make room. Nothing left the log.", { from, to });
}

// ── steps ───────────────────────────────────────────────────────────────────────────────────────

/** Finished steps behind one line; made only when somebody opens it. */
function foldView(first) {
  const label = h("span", {});
  const body = h("div", { class: "fold__steps" });
  const fold = h("details", { class: "fold" }, h("summary", {}, glyph("chev"), label), body);
  const node = entry({ mark: { icon: "check" }, kind: "entry--bare" }, fold);
  let item = first;
  const draw = () => {
    if (fold.open) reconcile(body, item.entry.steps.map((step) => ({ step, task: item.task })), ({ step }) => step.number, stepView);
  };
  fold.addEventListener("toggle", draw);

  function update(next) {
    item = next;
    say(label, foldText(next.entry.steps, next.task));
    draw();
  }

  update(first);
  return { node, update };
}

function foldText(steps, task) {
  const calls = steps.reduce((count, step) => count + callsOf(step, task).length, 0);
  const worked = steps.reduce((total, step) => total + stepMs(step, task), 0);
  const parts = [n(steps.length, "{n} step", "{n} steps"), calls ? n(calls, "{n} call", "{n} calls") : "", worked ? seconds(worked / 1000) : ""];
  return listed(...parts);
}

function openStepView(first) {
  const holder = h("div", {});
  const node = entry({ at: first.entry.step.startedAt, mark: null }, holder);
  const inner = stepView({ step: first.entry.step, task: first.task });
  const mark = node.querySelector(".entry__node");
  holder.append(inner.node);

  function update({ entry: { step }, task }) {
    const running = !task.ended && taskState(task) === "run";
    mark.className = running ? "entry__node mark--run" : "entry__node";
    replace(mark, running ? glyph("run") : null);
    inner.update({ step, task });
  }

  update(first);
  return { node, update };
}

/** {node, update({step, task})}: reasoning, text and calls of one model call, in the order it wrote them. */
function stepView(first) {
  const said = h("div", { class: "stack--s" });
  const calls = callsView(first);
  const notes = h("div", {});
  const node = h("div", { class: "stack" }, said, calls.node, notes);

  function update({ step, task }) {
    const words = step.blocks.filter((block) => block.kind !== "tool_call");
    const drafts = step.blocks.filter((block) => block.kind === "tool_call" && block.open);
    reconcile(said, words, (block) => block.id, blockView);
    said.hidden = words.length === 0;
    calls.node.hidden = callsOf(step, task).length === 0;
    calls.update({ step, task });
    replace(notes, waitingNote(step, task, words, drafts));
  }

  update(first);
  return { node, update };
}

/** What it does while nothing can be read yet. */
function waitingNote(step, task, words, drafts) {
  const retry = step.retries.at(-1);
  if (task.ended || step.finishedAt) return null;
  if (drafts.length) return h("p", { class: "small muted draft" }, t("Prepares a call: {name}…", { name: drafts.at(-1).name ?? "" }));
  if (words.length) return null;
  if (retry) return h("p", { class: "small muted" }, t("The model did not answer ({why}); trying again.", { why: told(retry.error.message) }));
  return h("p", { class: "small muted" }, t("Waits for the model…"));
}

function blockView(block) {
  return block.kind === "text" ? answerView(block) : reasoningView(block);
}

function reasoningView(first) {
  const label = h("span", {});
  const body = h("div", { class: "fold__body said" });
  const node = h("details", { class: "fold" }, h("summary", {}, glyph("chev"), label), body);
  let block = first;
  const draw = () => node.open && say(body, block.text);
  node.addEventListener("toggle", draw);

  function update(next) {
    block = next;
    say(label, next.open ? t("Reasoning…") : t("Reasoning"));
    draw();
  }

  update(first);
  return { node, update };
}

// ── decisions ───────────────────────────────────────────────────────────────────────────────────

/** A card while it waits, a line once it is decided; a card again where the outcome has to be explained. */
function decisionView(first, ctx) {
  const holder = h("div", {});
  const node = entry({ at: null, mark: { icon: "flag", kind: "wait" } }, holder);
  const mark = node.querySelector(".entry__node");
  let card = null;
  let shown = null;

  function update({ entry: { id }, task }) {
    const approval = task.approvals[id];
    if (approval === shown && !(card && approval.status !== "pending")) return undefined;
    shown = approval;
    if (!card && approval.status !== "pending") return settle(approval);
    if (!card) {
      card = cardOf(approval, ctx);
      ctx.cards.set(id, card);
      replace(holder, card.node);
      return undefined;
    }
    card.update(approval);
    if (approval.status !== "pending") settle(approval);
    return undefined;
  }

  function settle(approval) {
    const plainly = ["approved", "rejected"].includes(approval.status);
    const [symbol, kind] = decidedMark(approval.status);
    mark.className = kind ? `entry__node mark--${kind}` : "entry__node";
    replace(mark, glyph(symbol));
    if (plainly && !(card && card.node.contains(document.activeElement))) {
      end();
      replace(holder, decidedLine(approval, ctx));
    } else if (!card) {
      card = cardOf(approval, ctx);
      replace(holder, card.node);
    }
  }

  function end() {
    card?.end();
    card = null;
    ctx.cards.delete(first.entry.id);
  }

  update(first);
  return { node, update, end };
}

function cardOf(approval, ctx) {
  return approvalCard(approval, { ...ctx, canDecide: decidable(ctx.rights, approval) });
}

function decidedLine(approval, ctx) {
  const who = approval.resolved_by === ctx.username ? t("You") : (approval.resolved_by ?? t("Somebody"));
  const did = didWords(approval, who);
  const edited = approval.edited_arguments ? t("with an edit") : "";
  const answer = approval.kind === "question" && approval.answer ? `“${cut(approval.answer, 300)}”` : "";
  const meta = listed(answer, reachOf(approval), approval.resolved_at && time(approval.resolved_at), edited, approval.comment && `“${cut(approval.comment, 300)}”`);
  const card = cardOf(approval, ctx);
  card.end();
  return h(
    "details",
    { class: "fold", id: `approval-${approval.id}-line` },
    h("summary", {}, glyph("chev"), h("span", {}, did, gap(), decisionTitle(approval), answer || reachOf(approval) ? " " : comma(), h("span", { class: "muted" }, meta))),
    card.node,
  );
}

function didWords({ kind, status }, who) {
  if (kind === "question") return status === "approved" ? t("{who} answered:", { who }) : t("{who} let it decide:", { who });
  return status === "approved" ? t("{who} approved:", { who }) : t("{who} rejected:", { who });
}

// ── the foot of a finished turn ─────────────────────────────────────────────────────────────────

function footOf(task, ctx) {
  const used = task.usage.input_tokens + task.usage.output_tokens;
  const tokens = used ? t("{in} in, {out} out", { in: short(task.usage.input_tokens), out: short(task.usage.output_tokens) }) : "";
  const copy = quiet("copy", t("Copy"), () => ctx.copy(task.finalAnswer ?? ""));
  const fork = quiet("fork", t("Fork"), () => ctx.fork(task));
  const again = quiet("pencil", t("Edit and resend"), () => ctx.resend(task.goal));
  const paper = h("a", { class: "btn btn--quiet btn--small", href: ctx.exportOf(task), download: "" }, glyph("down"), t("Export"));
  const tools = [task.finalAnswer ? copy : null, paper, ctx.canWrite ? again : null, ctx.canWrite ? fork : null];
  return h(
    "div",
    { class: "entry entry--bare" },
    h("p", { class: "entry__at" }),
    h("div", { class: "turn__foot" }, h("div", { class: "btn-row" }, tools), tokens ? h("span", {}, tokens) : null, task.cost ? h("span", {}, money(task.cost)) : null),
  );
}

function quiet(symbol, label, onclick) {
  return h("button", { type: "button", class: "btn btn--quiet btn--small", onclick }, glyph(symbol), label);
}

/** What is said when a turn ends: how, and how it begins. */
export function endingWords(task) {
  const state = taskWord(taskState(task));
  const answer = (task.finalAnswer ?? "").replace(/[#*`_|]/g, "").trim();
  const sentence = /^[\s\S]{1,200}?[.!?。！？](?=\s|$)/.exec(answer)?.[0] ?? cut(answer, 160);
  return sentence ? `${state}. ${sentence}` : `${state}.`;
}

export function waitingWords(task) {
  return pendingOf(task).map((approval) => plain(decisionTitle(approval)));
}
