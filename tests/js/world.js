// A small model of the server for the reducer's tests: sessions that live through everything the log may hold, and
// readers who are cut off, come back late, and are told things twice. Deterministic: every choice comes from a seed.

export function random(seed) {
  let state = seed >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 0x100000000;
  };
  const below = (count) => Math.floor(next() * count);
  return { chance: (share) => next() < share, below, pick: (list) => list[below(list.length)] };
}

const WORDS = ["plain ", "naïve ", "船灯 ", "🚢 ", "𝒜 ", "<b>", "\n\n"];

/** `frames`: what a reader who was always there is sent, stored and live; `log`: the stored ones alone. */
export class World {
  constructor(seed, session = "s1") {
    this.rng = random(seed);
    this.session = session;
    this.frames = [];
    this.log = [];
    this.sequences = new Map();
    this.ids = 0;
    this.clock = Date.UTC(2026, 0, 31, 9, 30);
    this.open = new Map();
    this.snapshots = [];
  }

  id(prefix) {
    this.ids += 1;
    return `${this.session}-${prefix}${this.ids}`;
  }

  store(task, type, payload) {
    const sequence = (this.sequences.get(task) ?? 0) + 1;
    this.sequences.set(task, sequence);
    this.clock += 1 + this.rng.below(4000);
    const event = {
      sequence,
      position: this.log.length + 1,
      type,
      task_id: task,
      created_at: new Date(this.clock).toISOString(),
      payload,
    };
    this.log.push(event);
    this.#push(event);
  }

  live(task, type, payload) {
    this.#push({ sequence: 0, type, task_id: task, payload });
  }

  #push(frame) {
    this.frames.push(frame);
    // What a reader who joins right behind this frame is given: a snapshot of every open block.
    this.snapshots.push([...this.open.values()].map((block) => ({ ...block })));
  }

  session_of(tasks) {
    for (let index = 0; index < tasks; index += 1) this.task();
    return this;
  }

  task() {
    const { rng } = this;
    const task = this.id("t");
    this.store(task, "task_created", { goal: rng.pick(WORDS), session_id: this.session, trigger: "chat", follow_up_of: null });
    if (rng.chance(0.05)) return this.store(task, "task_cancelled", { by: "ines" });
    let run = 1;
    this.#start(task, run, "start");
    const steps = 1 + rng.below(3);
    for (let step = 1; step <= steps; step += 1) {
      if (rng.chance(0.15)) run = this.#crash(task, step, run);
      if (rng.chance(0.2)) this.store(task, "user_message", { message_id: this.id("m"), text: rng.pick(WORDS), by: "ines" });
      run = this.#step(task, step, run, step < steps);
    }
    return this.#end(task);
  }

  #start(task, run, reason) {
    this.store(task, "task_started", { run, reason, model: "m", limits: { steps: 12 }, mode: "ask" });
  }

  #crash(task, step, run) {
    this.store(task, "model_call_started", { step, model: "m", attempt: 1 });
    this.#write(task, step, "text", false);
    this.open.clear();
    this.store(task, "task_recovered", { reason: "the server stopped", previous_worker: "h:1" });
    this.#start(task, run + 1, "recover");
    return run + 1;
  }

  #step(task, step, run, calls) {
    const { rng } = this;
    this.store(task, "model_call_started", { step, model: "m", attempt: 1 });
    if (rng.chance(0.2)) {
      this.#write(task, step, "text", false);
      this.open.clear();
      this.store(task, "model_call_retried", { step, attempt: 1, error: { code: "x", message: "m", hint: "" }, delay_seconds: 1 });
      this.store(task, "model_call_started", { step, model: "m", attempt: 2 });
    }
    const written = [];
    if (rng.chance(0.5)) written.push(this.#write(task, step, "reasoning", true));
    if (!calls || rng.chance(0.5)) written.push(this.#write(task, step, "text", true));
    const wanted = calls ? Array.from({ length: 1 + rng.below(2) }, (_, index) => this.#write(task, step, "tool_call", true, index)) : [];
    const asked = wanted.map((block) => this.#commit(task, step, [...written.splice(0)], block));
    if (!calls) this.#commit(task, step, written, null);
    this.store(task, "model_call_finished", { step, finish_reason: "stop", usage: { input_tokens: rng.below(99), output_tokens: 3 }, cost: rng.chance(0.5) ? 0.01 : null, duration_ms: 900 });
    return asked.reduce((current, call) => this.#call(task, step, call, current), run);
  }

  #commit(task, step, messages, call) {
    for (const block of messages) {
      const type = block.kind === "text" ? "assistant_message" : "reasoning_message";
      this.open.delete(block.block_id);
      this.store(task, type, { step, block_id: block.block_id, text: block.text, ...(block.kind === "text" ? { html: `<p>${block.text.length}</p>` } : {}) });
    }
    if (!call) return null;
    this.open.delete(call.block_id);
    const asks = this.rng.chance(0.4);
    const made = { tool_call_id: this.id("c"), asks };
    this.store(task, "tool_call_requested", {
      step, tool_call_id: made.tool_call_id, block_id: call.block_id, index: call.index, name: "write_file",
      arguments: { path: "a" }, capability: asks ? "file:write" : "file:read", risk: "low", decision: asks ? "ask" : "allow", rule: "default",
    });
    return made;
  }

  /** Opens a block and grows it; `kept` false: it will never be stored. */
  #write(task, step, kind, kept, index = 0) {
    const block = { task, step, kind, block_id: this.id(kept ? "b" : "ghost"), index, name: "write_file", text: "", have: 0 };
    const words = 1 + this.rng.below(5);
    for (let count = 0; count < words; count += 1) {
      const delta = this.rng.pick(WORDS);
      const offset = [...block.text].length;
      block.text += delta;
      this.open.set(block.block_id, { ...block });
      this.#grown(block, offset, delta);
    }
    return block;
  }

  #grown(block, offset, delta) {
    const { step, block_id } = block;
    if (block.kind === "text") {
      const from = block.have;
      if (delta === "\n\n") block.have += 1;
      this.open.set(block.block_id, { ...block });
      this.live(block.task, "assistant_render", { step, block_id, from, to: block.have, html: block.have > from ? "<p>x</p>" : "", tail: delta });
    } else if (block.kind === "reasoning") {
      this.live(block.task, "reasoning_delta", { step, block_id, offset, delta });
    } else {
      this.live(block.task, "tool_call_delta", { step, block_id, index: block.index, name: block.name, offset, delta });
    }
  }

  #call(task, step, { tool_call_id, asks }, run) {
    const { rng } = this;
    let current = run;
    let approved = true;
    if (asks) {
      approved = rng.chance(0.6);
      current = this.#ask(task, step, tool_call_id, approved, run);
    }
    if (approved) {
      this.store(task, "tool_call_started", { step, tool_call_id });
      if (rng.chance(0.5)) this.live(task, "tool_progress", { tool_call_id, text: "half", done: 1, total: 2 });
    }
    this.store(task, "tool_call_finished", { step, tool_call_id, ok: approved, content: "c", details: {}, duration_ms: 5 });
    return current;
  }

  #ask(task, step, tool_call_id, approved, run) {
    let id = this.id("a");
    const question = { step, kind: "call", tool_call_id, name: "write_file", arguments: {}, capability: "file:write", risk: "low", reason: "r", rule: "r", diff: "d", options: [], arguments_digest: "x", target_digest: "y", expires_at: null };
    this.store(task, "approval_required", { ...question, approval_id: id });
    if (this.rng.chance(0.2)) {
      const next = this.id("a");
      this.store(task, "approval_resolved", { approval_id: id, kind: "call", tool_call_id, status: "stale", replaced_by: next, diff: "", answer: null, edited_arguments: null, comment: "", scope: "once" });
      this.store(task, "approval_required", { ...question, approval_id: next, replaces: id });
      id = next;
    }
    this.store(task, "approval_resolved", { approval_id: id, kind: "call", tool_call_id, status: approved ? "approved" : "rejected", edited_arguments: this.rng.chance(0.3) && approved ? { path: "b" } : null, diff: "", answer: null, resolved_by: "ines", comment: "", scope: "once" });
    this.#start(task, run + 1, "resume");
    return run + 1;
  }

  #end(task) {
    const type = this.rng.pick(["task_completed", "task_completed", "task_failed", "task_cancelled", "budget_exceeded"]);
    if (type === "task_completed") this.store(task, "agent_completed", { final_answer: "done" });
    const payloads = {
      task_completed: {},
      task_failed: { error: { code: "x", message: "m", hint: "h" } },
      task_cancelled: { by: "ines" },
      budget_exceeded: { which: "cost", used: 1, limit: 1, message: "m" },
    };
    this.open.clear();
    this.store(task, type, payloads[type]);
  }

  /** A reader's connection: stored events behind `after` as one who comes at frame `at` gets them, then live. */
  connection(after, at) {
    const replay = this.frames.slice(0, at).filter((frame) => frame.sequence > 0 && frame.position > after);
    const late = (this.snapshots[at - 1] ?? []).map((block) => ({
      sequence: 0, type: "snapshot", task_id: block.task,
      payload: { step: block.step, block_id: block.block_id, kind: block.kind, index: block.index, name: block.name, text: block.text, ...(block.kind === "text" ? { html: "<p>so far</p>" } : {}) },
    }));
    const connected = { sequence: 0, type: "connected", payload: { position: replay.at(-1)?.position ?? after, tasks: [], heartbeat: 15 } };
    return [connected, ...replay, ...late, ...this.frames.slice(at)];
  }
}
