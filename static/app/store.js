// The state of one session and who draws it: events are applied at once, drawing happens once per frame.
import { initial, reduceAll, reduceLog, skipTo } from "./reducer.js";

const HIDDEN_MS = 250; // no frames are drawn while the page is hidden, but its title still counts

export class Store {
  #draws = [];
  #frame = 0;
  #timer = 0;

  constructor(session) {
    this.state = initial(session);
    document.addEventListener("visibilitychange", () => this.#dirty() && this.#flush());
  }

  apply(events) {
    return this.#become(reduceAll(this.state, events));
  }

  /** A page read from the log; `end`: how far the log reached when its last page was asked for. */
  applyLog(events, end) {
    return this.#become(skipTo(reduceLog(this.state, events), end));
  }

  #become(next) {
    if (next === this.state) return false;
    this.state = next;
    this.schedule();
    return true;
  }

  /** `draw(state)` once per frame in which something changed. */
  onDraw(draw) {
    this.#draws.push(draw);
  }

  schedule() {
    if (this.#dirty()) return;
    if (document.hidden) this.#timer = setTimeout(() => this.#flush(), HIDDEN_MS);
    else this.#frame = requestAnimationFrame(() => this.#flush());
  }

  #dirty() {
    return this.#frame !== 0 || this.#timer !== 0;
  }

  #flush() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#frame = 0;
    this.#timer = 0;
    for (const draw of this.#draws) draw(this.state);
  }
}
