// How many tasks a queued one waits for. Only who waits asks, and only for as long.
import { get } from "./api.js";
import { h, say } from "./dom.js";
import { n } from "./text.js";

const AGAIN_MS = 3000;

/** A line of text that keeps itself true while it is on the page. */
export function placeInLine(task) {
  const node = h("p", { class: "small ink2", "data-line": task.id });
  let asked = false;

  async function look() {
    if (asked && !node.isConnected) return;
    asked = true;
    if (!document.hidden) {
      const { queue_position: place } = await get(`/api/tasks/${task.id}`).catch(() => ({}));
      say(node, place > 1 ? n(place - 1, "{n} task is before it.", "{n} tasks are before it.") : "");
    }
    setTimeout(look, AGAIN_MS);
  }

  setTimeout(look, AGAIN_MS / 10);
  return node;
}
