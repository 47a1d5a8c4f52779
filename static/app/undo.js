// Taking back what one call did to files: shown first, with the diff that the server makes, then confirmed.
import { get, post } from "./api.js";
import { diffView } from "./diff.js";
import { button, h, replace } from "./dom.js";
import { listed, n, size, time, t } from "./text.js";
import { told } from "./told.js";

export const UNDONE = "pilothouse:undone"; // tells the page that files are no longer as a call left them
const MOST_SHOWN = 20; // diffs; the rest by name

/** A quiet button that becomes the preview; null for a call that changed no file. */
export function undoView(call, task) {
  if (!call.details?.undo) return null;
  const url = `/api/tasks/${task}/events/${call.sequence}/undo`;
  const node = h("div", { class: "undo" });
  const opener = () => button(t("Undo…"), { icon: "undo", kind: "btn--quiet btn--small", onclick: () => asked(() => get(url)) });

  /** Ask the server, and show what it says. Focus stays in the part. */
  async function asked(ask) {
    for (const each of node.querySelectorAll("button")) each.disabled = true;
    try {
      const found = await ask();
      show(found);
      if (found.state === "undone") node.dispatchEvent(new CustomEvent(UNDONE, { bubbles: true }));
    } catch (error) {
      replace(node, h("p", { class: "small", role: "alert" }, refusal(error)), opener());
    }
    node.querySelector("button, [tabindex]")?.focus({ preventScroll: true });
  }

  function show(found) {
    const confirm = () => asked(() => post(url, { digest: found.digest }));
    const go = found.state === "possible" && found.can_undo ? button(t("Undo this call"), { kind: "btn--small btn--no", onclick: confirm }) : null;
    const close = button(found.state === "possible" ? t("Keep it") : t("Close"), { kind: "btn--small", onclick: closed });
    replace(
      node,
      h("h4", {}, t("Undo")),
      h("p", { class: "small", role: "status", tabindex: "-1" }, summary(found)),
      found.complete ? null : h("p", { class: "hint" }, t("There were too many files to look at all of them: the call may have changed more.")),
      found.state === "possible" && !found.can_undo ? h("p", { class: "hint" }, t("Whoever decides about such calls can undo it.")) : null,
      found.files.filter(({ state }) => state === "lost").map((file) => h("p", { class: "hint" }, lostWords(file))),
      found.files.filter(({ diff }) => diff).slice(0, MOST_SHOWN).map(({ path, diff }) => diffView(diff.includes("\n@@ ") ? diff : `+++ b/${path}\n${diff}`)),
      found.state === "undone" ? null : h("div", { class: "btn-row" }, go, close),
    );
  }

  function closed() {
    replace(node, opener());
    node.firstElementChild.focus({ preventScroll: true });
  }

  replace(node, opener());
  return node;
}

function summary({ state, files, undone_by: by, undone_at: at }) {
  const ready = files.filter((file) => file.state === "ready").length;
  const changed = files.filter((file) => file.state === "changed").map(({ path }) => path);
  if (state === "undone") return t("{who} undid this call, {time}. The agent was not told.", { who: by, time: time(at) });
  if (state === "changed") return t("Changed since the call: {files}. Nothing can be undone any more.", { files: listed(...changed.slice(0, MOST_SHOWN)) });
  if (state === "impossible") return files.length && files.every((file) => file.state === "done") ? t("The files are as they were before the call.") : t("It cannot be undone: what was there before is not kept.");
  if (!ready) return t("The files are as they were before the call."); // an undo was cut off behind the last of them
  return n(ready, "{n} file would be again what it was before the call:", "{n} files would be again what they were before the call:");
}

function lostWords({ path, reason, before }) {
  if (before) return t("{path} cannot be undone: the {size} that it had are not kept.", { path, size: size(before.size) });
  return t("{path} cannot be undone: {why}", { path, why: told(reason) });
}

function refusal(error) {
  if (error.unsent) return t("The server did not answer.");
  const { undone_by: who, files } = error.details;
  return (
    {
      stale: files ? t("Changed since the call: {files}. Nothing can be undone any more.", { files: listed(...files) }) : t("The files changed meanwhile. Look again."),
      already_undone: t("{who} undid it already.", { who }),
      busy: t("A command is running in this workspace. Try again when it has ended."),
      task_running: t("The task is running. Stop it, or wait until it has ended."),
      cannot_undo: t("It cannot be undone: what was there before is not kept."),
    }[error.code] ?? error.message
  );
}
