import assert from "node:assert/strict";
import { test } from "node:test";

import { behind, initial, openTasks, reduce, reduceAll, reduceLog, skipTo } from "../../static/app/reducer.js";
import { codePoints, stepOf } from "../../static/app/reducer-task.js";
import { World, random } from "./world.js";

const SEEDS = Array.from({ length: 150 }, (_, index) => index + 1);
const plain = (world) => reduceAll(initial(world.session), world.log);

/** Without what only a reader who was there can have: dropped ids and progress of what still runs. */
function settled(state) {
  const tasks = Object.fromEntries(Object.entries(state.tasks).map(([id, task]) => [id, { ...task, dropped: [] }]));
  return { ...state, tasks };
}

test("it works: a goal, an answer, an end", () => {
  const world = new World(1).session_of(1);
  const state = plain(world);
  assert.equal(state.order.length, 1);
  assert.equal(openTasks(state).length, 0);
  assert.equal(state.position, world.log.length);
});

test("who was always there and who reads the log see the same in the end", () => {
  for (const seed of SEEDS) {
    const world = new World(seed).session_of(3);
    assert.deepEqual(settled(reduceAll(initial("s1"), world.frames)), settled(plain(world)), `seed ${seed}`);
  }
});

test("any cut and reconnect ends in the same state as the plain log", () => {
  for (const seed of SEEDS) {
    const world = new World(seed).session_of(3);
    const rng = random(seed * 7919);
    let state = initial("s1");
    let at = rng.below(world.frames.length + 1);
    while (at < world.frames.length) {
      const frames = world.connection(state.position, at);
      const replayed = frames.length - (world.frames.length - at);
      const read = rng.below(frames.length + 1); // cut anywhere, in the replay too
      state = reduceAll(state, frames.slice(0, read));
      at = Math.max(at, Math.min(world.frames.length, at + read - replayed)) + rng.below(6);
    }
    state = reduceAll(state, world.connection(state.position, world.frames.length));
    assert.deepEqual(settled(state), settled(plain(world)), `seed ${seed}`);
    assert.equal(behind(state), false);
  }
});

test("frames that come twice, late, out of order or from elsewhere change nothing in the end", () => {
  for (const seed of SEEDS) {
    const world = new World(seed).session_of(2);
    const other = new World(seed + 1000, "s2").session_of(2);
    const rng = random(seed * 104_729);
    let state = initial("s1");
    for (const frame of world.frames) {
      if (rng.chance(0.1)) continue; // lost
      state = reduce(state, frame);
      if (rng.chance(0.3)) state = reduce(state, rng.pick(world.frames));
      if (rng.chance(0.2)) state = reduce(state, rng.pick(other.frames));
      if (rng.chance(0.1)) state = reduceAll(state, world.log.slice(state.position)); // re-read
    }
    state = reduceAll(state, world.log.slice(state.position));
    assert.deepEqual(settled(state), settled(plain(world)), `seed ${seed}`);
  }
});

test("nothing that never happened is left: no open block after its end", () => {
  for (const seed of SEEDS) {
    const world = new World(seed).session_of(2);
    let state = initial("s1");
    for (const frame of world.frames) {
      state = reduce(state, frame);
      if (!["model_call_finished", "model_call_retried", "task_recovered", "task_started"].includes(frame.type)) continue;
      const open = state.tasks[frame.task_id].items.flatMap((item) => item.blocks ?? []).filter((block) => block.open);
      assert.deepEqual(open, [], `seed ${seed} ${frame.type}`);
    }
    assert.ok(!JSON.stringify(settled(state)).includes("ghost"));
  }
});

test("the same state object comes back when nothing changes", () => {
  const world = new World(5).session_of(2);
  const state = plain(world);
  for (const frame of world.frames) assert.equal(reduce(state, frame), state);
});

test("what did not change keeps its identity", () => {
  const world = new World(9).session_of(2);
  const [first, second] = plain(world).order;
  const before = reduceAll(initial("s1"), world.log.filter((event) => event.task_id === first));
  const after = reduceAll(before, world.log);
  assert.equal(after.tasks[first], before.tasks[first]);
  assert.ok(after.tasks[second]);
});

function begun(...more) {
  const event = (sequence, type, payload) => ({ sequence, position: sequence, type, task_id: "t", created_at: "2026-01-31T09:30:00.000Z", payload });
  const log = [
    event(1, "task_created", { goal: "g", session_id: "s1", trigger: "chat", follow_up_of: null }),
    event(2, "task_started", { run: 1, reason: "start", model: "m", limits: {}, mode: "ask" }),
    event(3, "model_call_started", { step: 1, model: "m", attempt: 1 }),
  ];
  return reduceAll(initial("s1"), [...log, ...more.map((frame) => ({ sequence: 0, task_id: "t", ...frame }))]);
}

const block = (state) => stepOf(state.tasks.t, 1).blocks[0];

test("a delta counts only at its offset, counted in code points", () => {
  const delta = (offset, text) => ({ type: "reasoning_delta", payload: { step: 1, block_id: "b", offset, delta: text } });
  assert.equal(block(begun(delta(0, "🚢 "), delta(2, "ahoi"))).text, "🚢 ahoi");
  assert.equal(block(begun(delta(0, "🚢 "), delta(3, "ahoi"), delta(0, "again"))).text, "🚢 ");
  assert.equal(begun(delta(4, "late")).tasks.t.items[0].blocks.length, 0);
});

test("a snapshot starts a block anew, and deltas go on from its end", () => {
  const frames = [
    { type: "reasoning_delta", payload: { step: 1, block_id: "b", offset: 0, delta: "old" } },
    { type: "snapshot", payload: { step: 1, block_id: "b", kind: "reasoning", text: "older and 长" } },
    { type: "reasoning_delta", payload: { step: 1, block_id: "b", offset: 11, delta: "er" } },
  ];
  assert.equal(block(begun(...frames)).text, "older and 长er");
});

test("pieces are put behind each other; a hole is not filled with the wrong text", () => {
  const render = (from, to, html, tail) => ({ type: "assistant_render", payload: { step: 1, block_id: "b", from, to, html, tail } });
  const state = begun(render(0, 1, "<p>1</p>", "2"), render(3, 4, "<p>4</p>", "5"), render(1, 3, "<p>2</p><p>3</p>", "4"));
  assert.deepEqual(block(state).chunks, ["<p>1</p>", "<p>2</p><p>3</p>"]);
  assert.equal(block(state).tail, "4");
  const again = reduce(state, { sequence: 0, task_id: "t", ...render(0, 4, "<p>all</p>", "") });
  assert.deepEqual(block(again).chunks, ["<p>all</p>"]);
});

test("an older run and a step that nobody began are not listened to", () => {
  const state = begun();
  const old = { sequence: 4, position: 4, type: "task_started", task_id: "t", created_at: "x", payload: { run: 0 } };
  assert.equal(reduce(state, old).tasks.t, state.tasks.t);
  const lost = { sequence: 0, type: "reasoning_delta", task_id: "t", payload: { step: 7, block_id: "z", offset: 0, delta: "x" } };
  assert.equal(reduce(state, lost), state);
});

test("a number that is not the next one tells how far the log reaches", () => {
  const state = begun();
  const far = reduce(state, { sequence: 9, position: 9, type: "task_completed", task_id: "t", created_at: "x", payload: {} });
  assert.equal(behind(far), true);
  assert.equal(far.position, 3);
  const beat = reduce(state, { sequence: 0, type: "heartbeat", payload: { position: 4 } });
  assert.equal(behind(beat), true);
});

test("unknown types move the position and nothing else", () => {
  const state = reduce(begun(), { sequence: 4, position: 4, type: "new_in_the_future", task_id: "t", created_at: "x", payload: {} });
  assert.equal(state.position, 4);
  assert.equal(behind(state), false);
});

test("code points, not units", () => {
  for (const text of ["", "abc", "🚢", "a🚢b𝒜", "\ud83d", "é船"]) assert.equal(codePoints(text), [...text].length);
});

test("ten thousand events are reduced in one go", () => {
  const world = new World(3).session_of(600);
  assert.ok(world.log.length > 10_000, String(world.log.length));
  assert.equal(plain(world).position, world.log.length);
});

test("events that were pruned are passed over, but only when the log itself says so", () => {
  const world = new World(3).session_of(3);
  const second = world.log.findIndex((event) => event.type === "task_created" && event.position > 1);
  const left = world.log.slice(second);
  const heard = reduceAll(initial(world.session), left);
  assert.deepEqual([heard.position, heard.order.length, behind(heard)], [0, 0, true]);
  const read = reduceLog(heard, left);
  assert.equal(read.position, world.log.at(-1).position);
  assert.deepEqual([read.order.length, behind(read), read.gone], [2, false, true]);
  for (const id of read.order) assert.deepEqual(read.tasks[id], plain(world).tasks[id]);
  const empty = skipTo(heard, heard.reach);
  assert.deepEqual([behind(empty), empty.order.length], [false, 0]);
  assert.equal(skipTo(read, 1), read);
});
