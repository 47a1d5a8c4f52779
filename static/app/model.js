// What the pages say about the state: pure questions and answers, so that they can be tested without a page.
import { own } from "./reducer-task.js";

/** wait · run · done · failed · blocked · skipped · next */
export function callState(call, task) {
  if (call.finishedAt) return finishedState(call);
  if (call.approvals.some((id) => own(task.approvals, id)?.status === "pending")) return "wait";
  if (call.startedAt && !task.ended) return "run";
  return task.ended ? "skipped" : "next";
}

function finishedState(call) {
  if (call.ok) return "done";
  if (!call.capability) return "failed"; // there is no such tool
  if (call.decision === "deny") return "blocked";
  return call.startedAt || call.problem ? "failed" : "skipped";
}

/** queued · run · wait · done · failed · stopped · limit: what the task is for a person. */
export function taskState(task) {
  if (task.ended) return { completed: "done", failed: "failed", cancelled: "stopped", budget_exceeded: "limit" }[task.status];
  if (task.status === "queued") return "queued";
  return pendingOf(task).length ? "wait" : "run";
}

export function pendingOf(task) {
  return Object.values(task.approvals).filter((approval) => approval.status === "pending");
}

export function pendingIn(state) {
  return state.order.flatMap((id) => pendingOf(state.tasks[id])).sort(soonest);
}

/** Those without a limit last. */
export function soonest(one, other) {
  return (one.expires_at ?? "9").localeCompare(other.expires_at ?? "9") || one.created_at.localeCompare(other.created_at);
}

/** The tasks that wait for another one to end: they are the queue, not yet turns. */
export function queuedTasks(state) {
  const open = state.order.map((id) => state.tasks[id]).filter((task) => !task.ended);
  return open.filter((task, index) => index > 0 && task.status === "queued");
}

/** What was said to the running task and not yet read by its next step. */
export function unread(task) {
  const lastStep = task.items.findLastIndex((item) => item.kind === "step");
  return task.items.slice(lastStep + 1).filter((item) => item.kind === "said");
}

export function currentTask(state) {
  const tasks = state.order.map((id) => state.tasks[id]);
  return tasks.find((task) => !task.ended) ?? tasks.at(-1) ?? null;
}

export function callsOf(step, task) {
  return step.blocks.filter((block) => block.callId).map((block) => task.calls[block.callId]);
}

/** Milliseconds of work, waits for people left out; `now` for what is still running. */
export function workedMs(task, now) {
  return task.spans.reduce((total, span) => total + Math.max(0, (span.to ? Date.parse(span.to) : now) - Date.parse(span.from)), 0);
}

export function stepMs(step, task) {
  return (step.durationMs ?? 0) + callsOf(step, task).reduce((total, call) => total + (call.durationMs ?? 0), 0);
}

/** The turn's log below its goal, in order: folded steps, the open step, what was said, decided or went wrong.
 *  Steps behind each other share one fold; the last step of a turn is never folded. */
export function entriesOf(task) {
  const entries = [];
  const items = task.items.filter((item) => item.kind !== "step" || !task.ended || item.blocks.length); // it said nothing
  const last = items.findLast((item) => item.kind === "step");
  for (const item of items) {
    if (item.kind !== "step") {
      entries.push({ key: `${item.kind}:${item.id ?? item.at}`, ...item });
    } else if (item === last) {
      entries.push({ key: `step:${item.number}`, kind: "open", step: item });
    } else if (entries.at(-1)?.kind === "fold") {
      entries.push(joined(entries.pop(), item));
    } else {
      entries.push({ key: `fold:${item.number}`, kind: "fold", steps: [item] });
    }
  }
  return entries;
}

/** The steps that a summary stands for, by turn: [{task, turn, steps}]. What lies in another session is not here. */
export function coveredBy({ from_task_id: first, from_sequence: from, to_task_id: last, to_sequence: to }, state) {
  const end = state.order.indexOf(last);
  const begin = Math.max(0, state.order.indexOf(first));
  return state.order.slice(begin, end + 1).flatMap((id, index) => {
    const task = state.tasks[id];
    const inside = ({ kind, sequence }) => kind === "step" && (id !== first || sequence >= from) && (id !== last || sequence <= to);
    const steps = task.items.filter(inside);
    return steps.length ? [{ task, turn: begin + index + 1, steps }] : [];
  });
}

function joined(fold, step) {
  return { ...fold, steps: [...fold.steps, step] };
}

/** A path's folder and name, for "the same tool in one folder". */
export function folderOf(path) {
  return String(path ?? "").includes("/") ? String(path).replace(/\/[^/]*$/, "") : "";
}

/** Only what is alike and not dangerous can be decided together. */
export function together(approvals) {
  const keys = new Set(approvals.map((each) => `${each.name}\n${folderOf(each.arguments?.path)}`));
  return approvals.length > 0 && keys.size === 1 && approvals.every(batchable);
}

/** What came of several answers: a yes that waits for a second one has decided nothing. */
export function tally(results) {
  const open = results.filter((result) => result.ok && result.approval.status === "pending").length;
  const good = results.filter((result) => result.ok).length - open;
  return { good, noted: open, bad: results.find((result) => !result.ok) ?? null };
}

/** Whether the reader may decide it: whatever is asked there, or what an approver group of theirs decides. */
export function decidable({ can_decide: everything, decides = {} }, { capability = "" }) {
  const key = [capability, capability.split(":").pop()].find((name) => Object.hasOwn(decides, name));
  return everything || (key !== undefined && decides[key]);
}

export function batchable(approval) {
  return approval.kind === "call" && approval.risk !== "high" && approval.can_decide !== false && approval.can_approve !== false;
}

/** [symbol, kind] of an approval that is over: as its card says it. */
export function decidedMark(status) {
  return { approved: ["check", "ok"], rejected: ["cross", "fail"], expired: ["hour", ""], stale: ["retry", ""] }[status] ?? ["stop", ""];
}
