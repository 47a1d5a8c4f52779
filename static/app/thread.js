// The thread: turns in order, scroll that never moves what is being read, and the line that points to a waiting card.
import { glyph, h, reconcile, replace } from "./dom.js";
import { pendingIn, queuedTasks, taskState } from "./model.js";
import { decisionTitle } from "./sentences.js";
import { clock, t } from "./text.js";
import { turnView } from "./turn.js";

const NEAR_END = 80; // px: the end counts as in sight
const BAR = 60; // px: what the bar covers
const HAND_MS = 800; // a scroll within this time of a wheel, key or touch is the reader's own

/** {draw(state), begin(card), top(turn)}. `parts`: {thread, callout, jump}. */
export function threadView(parts, ctx) {
  const rows = new WeakMap();
  const scroll = follower(parts.jump);
  const gone = h("p", { class: "hint thread__gone", hidden: true }, t("Older events are no longer kept on this server."));
  const none = h("p", { class: "thread__none", hidden: true }, t("Nothing has been asked here yet."));
  parts.thread.before(gone, none);
  const shown = new Set(); // decisions that were on the page before

  function draw(state) {
    gone.hidden = !state.gone;
    none.hidden = state.order.length > 0;
    const hidden = new Set(queuedTasks(state).map((task) => task.id));
    const tasks = state.order.filter((id) => !hidden.has(id)).map((id) => state.tasks[id]);
    reconcile(parts.thread, tasks.map((task, index) => row(task, index + 1)), ({ task }) => task.id, (item) => turnView(item, ctx));
    parts.thread.setAttribute("aria-busy", String(tasks.some((task) => task.status === "running")));
    const pending = pendingIn(state);
    pointTo(parts.callout, pending, ctx);
    scroll.drawn(freshCard(pending), tasks.some((task) => taskState(task) === "run"));
  }

  function freshCard(pending) {
    const fresh = pending.filter(({ id }) => !shown.has(id));
    for (const { id } of fresh) shown.add(id);
    return fresh.length ? document.getElementById(`approval-${fresh[0].id}`) : null;
  }

  function row(task, number) {
    const before = rows.get(task);
    if (before) return before;
    const made = { task, number };
    rows.set(task, made);
    return made;
  }

  return { draw, begin: scroll.begin, top: scroll.top };
}

/** The view follows only while its end is in sight: one wheel, key or touch upwards stops it at once.
 *  After a send it follows until the goal has reached the top, so that the answer is read from its beginning. */
function follower(jump) {
  const root = document.documentElement;
  let following = false;
  let live = false; // something is being written at the end
  let goal = null; // the turn that must not leave the top by itself
  let touched = -HAND_MS;
  const rest = () => root.scrollHeight - innerHeight - scrollY;
  const atEnd = () => rest() < NEAR_END;
  const touch = () => (touched = performance.now());

  for (const type of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(type, touch, { passive: true });
  addEventListener("scroll", () => {
    if (performance.now() - touched < HAND_MS) {
      following = atEnd();
      goal = null;
    }
    place();
  }, { passive: true });
  jump.addEventListener("click", () => follow());

  function place() {
    jump.hidden = !live || atEnd(); // never over a decision: then the callout points to it
  }

  function follow() {
    goal = null;
    following = true;
    toEnd();
  }

  function toEnd() {
    const end = root.scrollHeight - innerHeight;
    const most = goal?.isConnected ? goal.getBoundingClientRect().top + scrollY - BAR : end;
    scrollTo({ top: Math.min(end, most), behavior: "instant" });
  }

  /** A decision is read from its head: evidence before buttons. */
  function toHead(card) {
    goal = null;
    toEnd();
    if (card.getBoundingClientRect().top < BAR) card.scrollIntoView({ block: "start", behavior: "instant" });
    following = false;
  }

  return {
    /** At the head of a decision, or at the end. */
    begin(card) {
      if (card) toHead(card);
      else follow();
    },
    drawn(fresh, running) {
      live = running;
      if (following && fresh) toHead(fresh);
      else if (following && rest() > 1) toEnd();
      place();
    },
    top(turn) {
      goal = turn;
      following = true;
      touched = -HAND_MS; // the key that sent it is not a hand on the scroll
      toEnd();
    },
  };
}

/** A line above the composer while a waiting card is out of sight. */
function pointTo(callout, pending, ctx) {
  const approval = pending[0];
  const card = approval && document.getElementById(`approval-${approval.id}`);
  if (!card) {
    callout.hidden = true;
    callout.watch?.disconnect();
    callout.watch = null;
    callout.target = null;
    return;
  }
  if (callout.target === card) return;
  callout.watch?.disconnect();
  callout.target = card;
  replace(callout, glyph("flag"), h("span", {}, `${t("Waits for you")}: `, decisionTitle(approval)), h("span", { class: "num" }, leftOf(approval)), h("span", { class: "btn btn--small" }, t("Show")));
  callout.onclick = (event) => {
    event.preventDefault();
    ctx.show(approval.id);
  };
  callout.setAttribute("href", `#approval-${approval.id}`);
  callout.watch = new IntersectionObserver((entries) => {
    callout.hidden = entries.at(-1).isIntersecting; // a busy page is told of several changes at once
  });
  callout.watch.observe(card);
}

function leftOf({ expires_at: until }) {
  return until ? clock((Date.parse(until) - Date.now()) / 1000) : "";
}

export function drawPill(pill, task, state, limits, word) {
  if (!task) {
    pill.hidden = true;
    return;
  }
  const [symbol, kind] = { queued: ["queued", ""], run: ["run", "run"], wait: ["flag", "wait"], done: ["check", "ok"], failed: ["cross", "fail"], stopped: ["stop", ""], limit: ["gauge", "wait"] }[state];
  const step = task.items.findLast((item) => item.kind === "step")?.number;
  const text = state === "run" && step ? t("Step {n} of {most}", { n: step, most: limits.steps ?? "–" }) : word;
  if (pill.dataset.shown === `${state} ${text}`) return;
  pill.dataset.shown = `${state} ${text}`;
  pill.hidden = false;
  pill.className = kind ? `pill pill--${kind}` : "pill";
  replace(pill, glyph(symbol), text);
}

