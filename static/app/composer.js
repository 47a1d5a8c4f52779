// Where people write: a goal, something for the next step, or what comes afterwards. A draft is never lost: it is kept
// in this browser until the server has said that it has it, and a send that failed may be pressed again safely.
import { post } from "./api.js";
import { h, iconButton, reconcile, say } from "./dom.js";
import { plainGoal } from "./goal.js";
import { currentTask, pendingOf, queuedTasks, unread } from "./model.js";
import { number, t } from "./text.js";

/** `parts`: {form, text, when, stop, send, problem, queue}; `ctx`: {session, workspace(), model(), attached, onSent(created), announce}. */
export function composer(parts, ctx) {
  const { form, text } = parts;
  const kept = draftOf(ctx.session ?? "new");
  let composing = false;
  let busy = false;
  let attempt = null; // {body, key}: the same words twice are one task
  let state = null;

  text.value = kept.read();
  text.addEventListener("input", () => kept.write(text.value));
  text.addEventListener("compositionstart", () => (composing = true));
  text.addEventListener("compositionend", () => setTimeout(() => (composing = false), 0)); // Safari ends it before the key
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || composing || event.keyCode === 229) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });

  const running = () => {
    const task = state && currentTask(state);
    return task && !task.ended ? task : null;
  };

  async function send() {
    const words = text.value.trim();
    if (!words || busy) return;
    if (ctx.attached?.waits()) return problem(t("A file is still on its way. Send again when it is there."));
    const task = running();
    const later = parts.when && !parts.when.hidden && parts.when.querySelector("input:checked").value === "queue";
    const steer = task && task.status !== "queued" && !later;
    const [path, body] = steer ? [`/api/tasks/${task.id}/messages`, { text: naming(words), delivery: "steer" }] : ["/api/tasks", goalBody(words)];
    lock(true);
    try {
      const created = await deliver(path, body);
      attempt = null;
      text.value = "";
      kept.write("");
      ctx.attached?.clear();
      problem("");
      ctx.onSent(created, steer);
    } catch (error) {
      failed(error);
    } finally {
      lock(false);
      text.focus();
    }
  }

  function goalBody(goal) {
    const paths = ctx.attached?.paths() ?? [];
    const attachments = paths.length ? { attachments: paths } : {};
    if (ctx.session) return { goal, session_id: ctx.session, when_busy: "queue", ...attachments };
    const model = ctx.model();
    return { goal, workspace_id: ctx.workspace(), ...(model ? { model } : {}), ...attachments };
  }

  /** What is said in the middle of a task names its files as the server lets a goal name them. */
  function naming(words) {
    const paths = ctx.attached?.paths() ?? [];
    return paths.length ? `${words}\n\nAttached files:\n${paths.map((path) => `- ${path}`).join("\n")}` : words;
  }

  function deliver(path, body) {
    const same = attempt && JSON.stringify(attempt.body) === JSON.stringify(body);
    attempt = same ? attempt : { body, key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
    return post(path, body, { key: attempt.key });
  }

  function failed(error) {
    if (error.unsent) problem(t("The server did not answer. Your words are kept here; sending again is safe."));
    else if (error.code === "task_ended") problem(t("The task has ended meanwhile. Send again to start the next one."));
    else problem(error.message);
  }

  function problem(words) {
    parts.problem.textContent = words;
    parts.problem.hidden = !words;
  }

  function lock(on) {
    busy = on;
    parts.send.disabled = on;
    form.setAttribute("aria-busy", String(on));
  }

  parts.stop?.addEventListener("click", () => stop());

  async function stop() {
    const task = running();
    if (!task || parts.stop.disabled) return;
    parts.stop.disabled = true;
    ctx.announce(t("Stopping…"));
    try {
      await post(`/api/tasks/${task.id}/cancel`);
    } catch (error) {
      parts.stop.disabled = false;
      problem(error.unsent ? t("The server did not answer. It was not stopped; press again.") : error.message);
    }
  }

  let stopping = null;

  function draw(next) {
    state = next;
    const task = running();
    if (stopping !== task?.id) {
      stopping = task?.id ?? null;
      if (parts.stop) parts.stop.disabled = false;
    }
    if (parts.stop) parts.stop.hidden = !task;
    const waits = task ? pendingOf(task).length > 0 : false;
    if (parts.when) parts.when.hidden = !task || waits || task.status === "queued";
    form.classList.toggle("compose--line", !task || waits);
    text.placeholder = placeholder(task, waits);
    drawQueue(next, task);
  }

  function drawQueue(next, task) {
    if (!parts.queue) return;
    const steered = task ? unread(task).map((said) => ({ id: said.id, tag: t("Next step"), text: said.text })) : [];
    const later = queuedTasks(next).map((queued, index) => ({ id: queued.id, tag: t("Afterwards, no. {n}", { n: number(index + 1) }), text: plainGoal(queued.goal), task: queued }));
    const items = [...steered, ...later];
    parts.queue.hidden = items.length === 0;
    reconcile(parts.queue, items, (item) => item.id, queueRow);
  }

  function queueRow({ tag: first, text: words, task }) {
    const tag = h("span", { class: "tag" }, first);
    const edit = iconButton("pencil", t("Edit queued message"), { kind: "btn--quiet btn--small", onclick: () => take(task, true) });
    const remove = iconButton("cross", t("Remove queued message"), { kind: "btn--quiet btn--small", onclick: () => take(task, false) });
    const node = h("li", {}, tag, h("p", {}, words), h("span", { class: "btn-row" }, task ? [edit, remove] : null));
    return { node, update: (item) => say(tag, item.tag) };
  }

  async function take(task, edit) {
    try {
      await post(`/api/tasks/${task.id}/cancel`);
      if (edit) fill(task.goal);
    } catch (error) {
      problem(error.unsent ? t("The server did not answer.") : error.message);
    }
  }

  function fill(words) {
    text.value = words;
    kept.write(words);
    text.focus();
  }

  return { draw, stop, fill, focus: () => text.focus() };
}

function placeholder(task, waits) {
  if (!task) return t("Say what should be done next");
  if (waits) return t("Add something for the next step");
  return task.status === "queued" ? t("Queue the next task") : t("Steer it, or queue the next task");
}

/** A browser may refuse its storage: then a draft lives as long as the page. */
function draftOf(name) {
  const key = `draft:${name}`;
  return {
    read() {
      try {
        return localStorage.getItem(key) ?? "";
      } catch {
        return "";
      }
    },
    write(words) {
      try {
        if (words) localStorage.setItem(key, words);
        else localStorage.removeItem(key);
      } catch {
        // storage is closed
      }
    },
  };
}

