// The reducer's part about one task: its steps, blocks, calls and approvals. Pure, like reducer.js.

/** A task as its first event tells it. */
export function created(event) {
  const { goal, trigger, follow_up_of: followUpOf } = event.payload;
  return {
    id: event.task_id,
    goal,
    html: event.payload.html ?? null,
    trigger,
    followUpOf,
    by: event.payload.by ?? null,
    createdAt: event.created_at,
    at: event.created_at,
    sequence: event.sequence,
    status: "queued",
    ended: false,
    run: 0,
    limits: {},
    items: [], // steps, and what was said or happened between them, in order
    calls: {},
    approvals: {},
    artifacts: [],
    spans: [], // when it worked: waits for people are off the clock
    usage: { input_tokens: 0, output_tokens: 0, reasoning_tokens: 0, cached_tokens: 0, estimated: false },
    cost: null,
    dropped: [], // blocks that never happened: late frames of theirs change nothing
  };
}

export function closeSpan(spans, at) {
  const last = spans.at(-1);
  return last && !last.to ? [...spans.slice(0, -1), { ...last, to: at }] : spans;
}

/** Ids come from models and providers: "constructor" is one of them, not a property of ours. */
export function own(map, id) {
  return Object.hasOwn(map, id) ? map[id] : undefined;
}

// ── steps and blocks ────────────────────────────────────────────────────────────────────────────

export function stepOf(task, number) {
  return task.items.findLast((item) => item.kind === "step" && item.number === number);
}

function withStep(task, number, change) {
  const index = task.items.findLastIndex((item) => item.kind === "step" && item.number === number);
  if (index < 0) return task;
  const next = change(task.items[index]);
  return next === task.items[index] ? task : { ...task, items: task.items.with(index, next) };
}

function add(task, item) {
  return { ...task, items: [...task.items, item] };
}

/** The step, made if it is new: a call's step may be told before any model call of ours. */
function ensureStep(task, number, at) {
  return stepOf(task, number) ? task : add(task, { kind: "step", number, sequence: task.sequence, startedAt: at, retries: [], blocks: [] });
}

/** What the model was writing when this attempt ended without being stored. */
export function dropOpen(task) {
  if (!task.items.some((item) => item.kind === "step" && item.blocks.some((block) => block.open))) return task;
  const dropped = [...task.dropped];
  const items = task.items.map((item) => {
    if (item.kind !== "step" || !item.blocks.some((block) => block.open)) return item;
    dropped.push(...item.blocks.filter((block) => block.open).map((block) => block.id));
    return { ...item, blocks: item.blocks.filter((block) => !block.open) };
  });
  return { ...task, items, dropped };
}

/** A stored block: behind the stored ones before it, ahead of what is still open. */
function close(task, number, block, at) {
  return withStep(ensureStep(task, number, at), number, (step) => {
    const rest = step.blocks.filter((each) => each.id !== block.id);
    const done = rest.filter((each) => !each.open);
    const open = rest.filter((each) => each.open);
    return { ...step, blocks: [...done, { ...block, open: false, at }, ...open] };
  });
}

function message(kind) {
  return (task, { step, block_id: id, text, html, partial }, event) =>
    close(task, step, { id, kind, text, html: html ?? null, partial: partial === true }, event.created_at);
}

/** Change an open block, or open it with `fresh`; null from `change` means that the frame does not fit. */
function grow(task, payload, kind, change) {
  const id = payload.block_id;
  if (task.dropped.includes(id)) return task;
  return withStep(task, payload.step, (step) => {
    const index = step.blocks.findIndex((block) => block.id === id);
    if (index >= 0 && !step.blocks[index].open) return step;
    const before = step.blocks[index] ?? { id, kind, open: true, text: "", length: 0, chunks: [], have: 0, tail: "", name: payload.name };
    const next = change(before);
    if (!next) return step;
    return { ...step, blocks: index < 0 ? [...step.blocks, next] : step.blocks.with(index, next) };
  });
}

/** Offsets count Unicode code points; JavaScript's length does not. */
export function codePoints(text) {
  let count = 0;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit < 0xdc00 || unit > 0xdfff || !highAt(text, index - 1)) count += 1;
  }
  return count;
}

function highAt(text, index) {
  const unit = index < 0 ? 0 : text.charCodeAt(index);
  return unit >= 0xd800 && unit <= 0xdbff;
}

function delta(kind) {
  return (task, payload) =>
    grow(task, payload, kind, (block) => {
      if (payload.offset !== block.length) return null;
      return { ...block, text: block.text + payload.delta, length: block.length + codePoints(payload.delta) };
    });
}

function snapshot(task, payload) {
  return grow(task, payload, payload.kind, (block) => ({
    ...block,
    text: payload.text,
    length: codePoints(payload.text),
    chunks: payload.html == null ? [] : [payload.html],
    have: 0,
    tail: "",
  }));
}

/** Settled pieces from … to−1 and the open part (docs/pages.md). A frame that leaves a hole does not fit. */
function rendered(task, payload) {
  return grow(task, payload, "text", (block) => {
    if (payload.from !== 0 && payload.from !== block.have) return null;
    const chunks = payload.from === 0 ? [] : block.chunks;
    return { ...block, chunks: payload.html ? [...chunks, payload.html] : chunks, have: payload.to, tail: payload.tail };
  });
}

// ── calls ───────────────────────────────────────────────────────────────────────────────────────

function withCall(task, id, change) {
  const call = own(task.calls, id);
  if (!call) return task;
  const next = change(call);
  return next === call ? task : { ...task, calls: { ...task.calls, [id]: next } };
}

function requested(task, payload, event) {
  const { tool_call_id: id, block_id: blockId, step } = payload;
  const call = {
    id,
    step,
    name: payload.name,
    arguments: payload.arguments,
    raw: payload.raw_arguments ?? null,
    problem: payload.problem ?? null,
    capability: payload.capability,
    risk: payload.risk,
    decision: payload.decision,
    rule: payload.rule,
    requestedAt: event.created_at,
    approvals: [],
  };
  const block = { id: blockId || `call:${id}`, kind: "tool_call", callId: id };
  return close({ ...task, calls: { ...task.calls, [id]: call } }, step, block, event.created_at);
}

function callFinished(task, payload, event) {
  return withCall(task, payload.tool_call_id, ({ progress, ...call }) => ({
    ...call,
    finishedAt: event.created_at,
    sequence: event.sequence,
    ok: payload.ok,
    content: payload.content,
    details: payload.details ?? {},
    durationMs: payload.duration_ms,
    ...(payload.truncated ? { truncated: true, size: payload.size, url: payload.url } : {}),
  }));
}

function progressed(task, { tool_call_id: id, text, done, total }) {
  return withCall(task, id, (call) =>
    call.finishedAt || !call.startedAt ? call : { ...call, progress: { text, done: done ?? null, total: total ?? null } },
  );
}

// ── approvals ───────────────────────────────────────────────────────────────────────────────────

function asked(task, payload, event) {
  const { approval_id: id, replaces, ...rest } = payload;
  const approval = { ...rest, id, replaces: replaces ?? null, task_id: task.id, status: "pending", created_at: event.created_at };
  const waiting = { ...task, approvals: { ...task.approvals, [id]: approval }, status: "waiting_approval", spans: closeSpan(task.spans, event.created_at) };
  const noted = withCall(waiting, payload.tool_call_id, (call) => ({ ...call, approvals: [...call.approvals, id] }));
  return add(noted, { kind: "approval", id });
}

function resolved(task, payload, event) {
  const { approval_id: id, diff, ...rest } = payload;
  const before = own(task.approvals, id);
  if (!before) return task;
  const after = { ...before, ...rest, diff: diff || before.diff, resolved_at: event.created_at };
  const next = { ...task, approvals: { ...task.approvals, [id]: after } };
  if (payload.status !== "approved" || !payload.edited_arguments) return next;
  return withCall(next, payload.tool_call_id, (call) => ({ ...call, edited: payload.edited_arguments }));
}

// ── the tables ──────────────────────────────────────────────────────────────────────────────────

function modelCallStarted(task, { step: number, model, attempt }, event) {
  const known = ensureStep(task, number, event.created_at);
  return withStep(known, number, (step) => ({ ...step, model, attempt, callAt: event.created_at, finishedAt: null }));
}

function modelCallFinished(task, payload, event) {
  const { step: number, usage = {}, cost, duration_ms: durationMs, finish_reason: finishReason } = payload;
  const counted = withStep(task, number, (step) => ({
    ...step,
    finishedAt: event.created_at,
    durationMs,
    finishReason,
    usage,
    cost: cost ?? null,
  }));
  return paid(counted, usage, cost);
}

function compacted(task, payload, event) {
  const { step, usage = {}, cost, ...rest } = payload;
  return paid(add(task, { kind: "compacted", at: event.created_at, ...rest }), usage, cost);
}

function paid(task, usage, cost) {
  return { ...task, usage: sum(task.usage, usage), cost: cost == null ? task.cost : (task.cost ?? 0) + cost };
}

function sum(total, usage) {
  const next = { ...total, estimated: total.estimated || usage.estimated === true };
  for (const name of ["input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens"]) {
    next[name] = total[name] + (usage[name] ?? 0);
  }
  return next;
}

function started(task, payload, event) {
  return {
    ...task,
    status: "running",
    run: payload.run,
    reason: payload.reason,
    model: payload.model,
    limits: payload.limits ?? {},
    mode: payload.mode,
    startedAt: task.startedAt ?? event.created_at,
    spans: [...closeSpan(task.spans, event.created_at), { from: event.created_at }],
  };
}

export const STORED = {
  task_started: started,
  task_recovered: (task, payload, event) => add(task, { kind: "recovered", at: event.created_at, ...payload }),
  user_message: (task, payload, event) =>
    add(task, { kind: "said", id: payload.message_id, text: payload.text, by: payload.by, at: event.created_at }),
  model_call_started: modelCallStarted,
  model_call_retried: (task, payload) =>
    withStep(task, payload.step, (step) => ({ ...step, retries: [...step.retries, payload] })),
  model_call_finished: modelCallFinished,
  reasoning_message: message("reasoning"),
  assistant_message: message("text"),
  tool_call_requested: requested,
  tool_call_started: (task, payload, event) =>
    withCall(task, payload.tool_call_id, (call) => ({ ...call, startedAt: event.created_at })),
  tool_call_finished: callFinished,
  approval_required: asked,
  approval_resolved: resolved,
  approval_updated: (task, { approval_id: id, ...rest }) =>
    own(task.approvals, id) ? { ...task, approvals: { ...task.approvals, [id]: { ...task.approvals[id], ...rest } } } : task,
  artifact_recorded: (task, payload, event) => ({
    ...task,
    artifacts: [...task.artifacts.filter((each) => each.path !== payload.path), { ...payload, at: event.created_at }],
  }),
  context_compacted: compacted,
  budget_warning: (task, payload, event) => add(task, { kind: "warning", at: event.created_at, ...payload }),
  agent_completed: (task, payload) => ({ ...task, finalAnswer: payload.final_answer }),
  task_failed: (task, payload) => ({ ...task, error: payload.error }),
  task_cancelled: (task, payload) => ({ ...task, endedBy: payload.by }),
  budget_exceeded: (task, payload) => ({ ...task, budget: payload }),
};

export const LIVE = {
  snapshot,
  assistant_delta: delta("text"),
  reasoning_delta: delta("reasoning"),
  tool_call_delta: delta("tool_call"),
  assistant_render: rendered,
  tool_progress: progressed,
};
