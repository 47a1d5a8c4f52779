// What happened, as one value: the only place where events become state. Pure: no clock, no page, no network.
//
// 1. A stored event counts once and only at its place: its position is the next one. What comes twice is ignored,
//    what comes too early only tells how far the log reaches (`reach`); whoever drives re-reads from `position`.
// 2. A live frame adds to an open block or to a running call and to nothing else: never to what is stored, has
//    ended, or was dropped. So whatever was cut, repeated or lost, the state ends as the plain log would make it.
// 3. Only the log itself can say that events are gone for good (they were pruned): then `skipTo` passes over them.
// 4. What did not change is the same object as before, so that a view can compare by identity.
import { LIVE, STORED, closeSpan, created, dropOpen, own } from "./reducer-task.js";

export const TERMINAL = Object.freeze({
  task_completed: "completed",
  task_failed: "failed",
  task_cancelled: "cancelled",
  budget_exceeded: "budget_exceeded",
});

/** After one of these an open block without its stored message never happened (docs/events.md). */
const ENDS_BLOCKS = new Set([
  "model_call_finished",
  "model_call_retried",
  "task_recovered",
  "task_started",
  ...Object.keys(TERMINAL),
]);

export function initial(session) {
  return { session, position: 0, reach: 0, gone: false, tasks: {}, order: [] };
}

export function reduce(state, event) {
  if (!event || typeof event.type !== "string") return state;
  return event.sequence > 0 ? stored(state, event) : live(state, event);
}

export function reduceAll(state, events) {
  return events.reduce(reduce, state);
}

/** A page of the log, read behind what was applied: what is missing between its events is gone. */
export function reduceLog(state, events) {
  return events.reduce((before, event) => reduce(skipTo(before, event.position - 1), event), state);
}

/** There is nothing up to this position that is not applied. */
export function skipTo(state, position) {
  return position > state.position ? { ...state, position, reach: Math.max(state.reach, position), gone: true } : state;
}

/** The log is known to reach further than what was applied. */
export function behind(state) {
  return state.reach > state.position;
}

export function openTasks(state) {
  return state.order.map((id) => state.tasks[id]).filter((task) => !task.ended);
}

function stored(state, event) {
  if (foreign(state, event) || !(event.position > state.position)) return state;
  if (event.position > state.position + 1) return reaching(state, event.position);
  const moved = { ...state, position: event.position, reach: Math.max(state.reach, event.position) };
  if (event.type === "task_created") {
    return { ...put(moved, created(event)), order: [...state.order, event.task_id] };
  }
  const task = state.tasks[event.task_id];
  if (event.type === "task_started" && event.payload.run < task.run) return moved;
  return put(moved, advanced(task, event));
}

/** Of another session, or of a task whose beginning is not here. */
function foreign(state, event) {
  if (event.type === "task_created") return event.payload.session_id !== state.session;
  return !Object.hasOwn(state.tasks, event.task_id);
}

function advanced(task, event) {
  let next = { ...task, sequence: event.sequence, at: event.created_at };
  if (ENDS_BLOCKS.has(event.type)) next = dropOpen(next);
  if (Object.hasOwn(TERMINAL, event.type)) next = ended(next, event);
  return Object.hasOwn(STORED, event.type) ? STORED[event.type](next, event.payload, event) : next;
}

function ended(task, event) {
  const spans = closeSpan(task.spans, event.created_at);
  return { ...task, status: TERMINAL[event.type], ended: true, endedAt: event.created_at, spans, dropped: [] };
}

function live(state, event) {
  const payload = event.payload ?? {};
  if (event.type === "connected" || event.type === "heartbeat") return reaching(state, payload.position ?? 0);
  const task = own(state.tasks, event.task_id);
  if (!task || task.ended || !Object.hasOwn(LIVE, event.type)) return state;
  const next = LIVE[event.type](task, payload);
  return next === task ? state : put(state, next);
}

function reaching(state, position) {
  return position > state.reach ? { ...state, reach: position } : state;
}

function put(state, task) {
  return { ...state, tasks: { ...state.tasks, [task.id]: task } };
}
