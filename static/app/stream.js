// The line to the server. It trusts no single channel:
//
// 1. An EventSource that does not say `connected` within 10 s, or is silent for two heartbeats, is replaced. Every
//    connection starts behind what was applied, so that nothing is missed or counted twice.
// 2. The log itself is read again when the page becomes visible or online, after a reconnect, when a number is
//    missing, and every 15 s while a task is open.
// 3. With no open task it closes after 30 s and makes no request until somebody wakes it.
//
// What it hears it gives to `onEvents`, what it reads in the log to `onLog` (store.js); how the line stands to `onLine` ({state, at, again}).
import { get } from "./api.js";
import { behind, openTasks } from "./reducer.js";

const STORED_TYPES = [
  "task_created", "task_started", "task_recovered", "user_message", "agent_completed", "task_completed", "task_failed",
  "task_cancelled", "budget_exceeded", "model_call_started", "model_call_retried", "model_call_finished",
  "reasoning_message", "assistant_message", "context_compacted", "budget_warning", "tool_call_requested",
  "approval_required", "approval_updated", "approval_resolved", "tool_call_started", "tool_call_finished", "artifact_recorded",
];
const LIVE_TYPES = ["connected", "heartbeat", "snapshot", "assistant_delta", "assistant_render", "reasoning_delta", "tool_call_delta", "tool_progress"];
const CONNECT_MS = 10_000;
const IDLE_MS = 30_000;
const REREAD_MS = 15_000;
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000];
const PAGE = 500;

export class Line {
  #source = null;
  #failures = 0;
  #beat = 15;
  #timers = new Map();
  #reading = null;
  #lost = false;
  #awake = false;
  #heard = false;

  /** `state()`: what was applied so far (reducer.js). */
  constructor({ session, state, onEvents, onLog, onLine }) {
    this.session = session;
    this.state = state;
    this.onEvents = onEvents;
    this.onLog = onLog;
    this.onLine = onLine;
    document.addEventListener("visibilitychange", () => document.hidden || this.#look());
    addEventListener("online", () => this.retry());
    addEventListener("offline", () => this.#source && this.#fail());
    addEventListener("pagehide", () => this.#drop());
    addEventListener("pageshow", (event) => event.persisted && this.#awake && this.#open());
  }

  /** Follow: now, and as long as a task is open and 30 s after. */
  wake() {
    this.#awake = true;
    if (!this.#source && !this.#timers.has("retry")) this.#open();
    this.settle();
  }

  /** Try now instead of waiting. */
  retry() {
    if (!this.#awake) return;
    this.#drop();
    this.#open();
  }

  /** To be called when the state changed: starts or stops the clocks that depend on what is open. */
  settle() {
    if (this.#needed()) {
      this.#stop("idle");
      if (!this.#timers.has("reread")) this.#every("reread", REREAD_MS, () => this.reread());
    } else {
      this.#stop("reread");
      if (this.#source && !this.#timers.has("idle")) this.#after("idle", IDLE_MS, () => this.#sleep());
    }
    if (behind(this.state()) && !this.#timers.has("gap")) this.#after("gap", 1000, () => behind(this.state()) && this.reread());
  }

  /** What is stored behind what was applied, from the log itself. One reading at a time. */
  async reread() {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #read() {
    try {
      let after = this.state().position;
      for (;;) {
        const reach = this.state().reach;
        const page = await get(`/api/sessions/${this.session}/events?render=html&limit=${PAGE}&after=${after}`);
        this.onLog(page.items, page.next ? 0 : reach);
        if (!page.next) return;
        after = page.next;
      }
    } catch (error) {
      if (error.status === 404) this.#gone();
      else if (error.unsent && this.#source) this.#fail();
    }
  }

  #look() {
    if (!this.#awake) return;
    if (!this.#source) this.retry();
    else this.reread();
  }

  #open() {
    this.#drop();
    const url = `/api/sessions/${this.session}/stream?render=html&after=${this.state().position}`;
    const source = new EventSource(url);
    this.#source = source;
    this.#after("connect", CONNECT_MS, () => this.#fail());
    const hear = (message) => {
      if (source !== this.#source) return; // a line that was given up
      const event = JSON.parse(message.data);
      this.#hear(event);
      this.onEvents([event]);
    };
    for (const type of [...STORED_TYPES, ...LIVE_TYPES]) source.addEventListener(type, hear);
    source.addEventListener("error", () => {
      if (source === this.#source) this.#fail();
    });
  }

  #hear(event) {
    if (event.type === "connected") this.#connected(event.payload);
    this.#after("silence", (2 * this.#beat + 5) * 1000, () => this.#fail());
  }

  #connected({ heartbeat }) {
    this.#stop("connect");
    this.#heard = true;
    this.#beat = heartbeat || this.#beat;
    const back = this.#lost;
    this.#failures = 0;
    this.#lost = false;
    this.onLine({ state: back ? "back" : "open", at: Date.now() });
    if (back) this.reread();
    this.settle();
  }

  #fail() {
    this.#drop();
    if (this.#heard && !this.#needed()) return this.#sleep(); // nothing to come back for
    if (!this.#lost) this.lostAt = Date.now();
    this.#lost = true;
    const wait = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)];
    this.#failures += 1;
    this.onLine({ state: "lost", at: this.lostAt, again: Date.now() + wait, failures: this.#failures });
    this.#after("retry", wait, () => this.#open());
    if (this.#failures > 1) this.reread(); // a stream cannot say why: signed out, deleted, or only away
  }

  #gone() {
    this.#awake = false;
    this.#drop();
    this.#stop("reread");
    this.onLine({ state: "gone", at: Date.now() });
  }

  /** Something is open, or something is known to be missing. */
  #needed() {
    return openTasks(this.state()).length > 0 || behind(this.state());
  }

  #sleep() {
    if (this.#needed()) return;
    this.#awake = false;
    this.#drop();
    this.onLine({ state: "closed", at: Date.now() });
  }

  #drop() {
    this.#source?.close();
    this.#source = null;
    for (const name of ["connect", "silence", "retry", "idle"]) this.#stop(name);
  }

  #after(name, delay, act) {
    this.#stop(name);
    const timer = setTimeout(() => {
      this.#timers.delete(name);
      act();
    }, delay);
    this.#timers.set(name, () => clearTimeout(timer));
  }

  #every(name, delay, act) {
    this.#stop(name);
    const timer = setInterval(act, delay);
    this.#timers.set(name, () => clearInterval(timer));
  }

  #stop(name) {
    this.#timers.get(name)?.();
    this.#timers.delete(name);
  }
}
