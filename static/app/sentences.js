// What a call does, said to a person: a sentence, a short name, one line of result.
import { h } from "./dom.js";
import { cut, n, number, rich, size, t, visible } from "./text.js";
import { told } from "./told.js";

const code = (value, most = 300) => h("code", {}, cut(visible(String(value ?? "")), most));

/** Parts for h(): "Read `quotes/a.csv`, lines 1–80". Wrong arguments are shown by the tool's name alone. */
export function sentence(call) {
  const args = call.edited ?? call.arguments;
  if (!args) return rich(t("Call {name}"), { name: code(call.name) });
  return Object.hasOwn(SENTENCES, call.name) ? SENTENCES[call.name](args) : rich(t("Use {name}"), { name: code(call.name) });
}

const SENTENCES = {
  list_files: ({ path }) => (!path || path === "." ? [t("List files")] : rich(t("List files in {path}"), { path: code(path) })),
  read_file: ({ path, start_line: from, end_line: to }) =>
    from || to
      ? rich(t("Read {path}, lines {from}–{to}"), { path: code(path), from: number(from ?? 1), to: to ? number(to) : "…" })
      : rich(t("Read {path}"), { path: code(path) }),
  search_files: ({ query, path, glob }) =>
    path || glob
      ? rich(t("Search for {query} in {path}"), { query: code(query), path: code(path || glob) })
      : rich(t("Search for {query}"), { query: code(query) }),
  write_file: ({ path }) => rich(t("Write {path}"), { path: code(path) }),
  edit_file: ({ path }) => rich(t("Change {path}"), { path: code(path) }),
  memory_write: ({ path, mode }) => {
    const where = { path: code(path || "memory/MEMORY.md") };
    return mode === "replace" ? rich(t("Rewrite its memory in {path}"), where) : rich(t("Add to its memory in {path}"), where);
  },
  expand_skill: ({ name }) => rich(t("Read the skill {name}"), { name: code(name) }),
  run_command: ({ command }) => rich(t("Run {command}"), { command: code(Array.isArray(command) ? command.join(" ") : command) }),
  fetch_url: ({ url }) => rich(t("Fetch {url}"), { url: code(url) }),
  ask_user: ({ question }) => rich(t("Ask you: {question}"), { question: cut(question ?? "", 300) }),
};

/** The title of a decision: verb and object, the whole path. A write says whether the file is new. */
export function decisionTitle(approval) {
  const { name, diff } = approval;
  const args = approval.edited_arguments ?? approval.arguments;
  if (approval.kind === "unknown_effect") return rich(t("Did {name} finish?"), { name: code(name) });
  if (approval.kind === "limit" && name === "more_budget") return [t("A limit is used up. Go on with as much again?")];
  if (approval.kind === "limit") return [t("Go on after the same call again and again?")];
  if (approval.kind === "question") return [args?.question ?? approval.reason];
  const path = args?.path;
  if (name === "write_file" && path) {
    const fresh = String(diff ?? "").startsWith("--- /dev/null");
    return fresh ? rich(t("Create {path}"), { path: code(path, 2000) }) : rich(t("Overwrite {path}"), { path: code(path, 2000) });
  }
  return sentence({ ...approval, arguments: args });
}

/** A call under the name under which it was asked about: "Create …", not "Write …" here and "Create …" there. */
export function callTitle(call, task) {
  const asked = call.approvals.map((id) => task.approvals[id]).findLast(({ kind }) => kind === "call");
  return asked ? decisionTitle({ ...asked, arguments: call.edited ?? asked.arguments }) : sentence(call);
}

export function plain(parts) {
  return parts.map((part) => (typeof part === "string" ? part : part.textContent)).join("");
}

/** One line below the sentence. */
export function outcome(call, state, progress) {
  if (state === "run") return progress?.text ?? "";
  if (state === "wait" && call.name === "ask_user") return t("Waits for your answer.");
  if (state === "wait") return t("Waits for your decision. Nothing has happened yet.");
  if (state === "next") return t("Its turn comes next.");
  if (state === "blocked") return rich(t("Blocked by policy: {rule}. Nothing was done."), { rule: told(call.rule) });
  if (state === "skipped") return call.content ? told(firstLine(call.content)) : t("Not run.");
  if (state === "failed") return told(firstLine(call.content || call.problem || ""));
  return Object.hasOwn(RESULTS, call.name) ? RESULTS[call.name](call.details ?? {}) : firstLine(call.content ?? "");
}

const RESULTS = {
  list_files: ({ entries, complete }) =>
    entries === undefined ? "" : `${n(entries, "{n} entry", "{n} entries")}${complete === false ? t(", not all of them") : ""}`,
  read_file: ({ lines, from, to, bytes }) => {
    if (lines === undefined) return "";
    const shown = from > 1 || to < lines ? t("lines {from}–{to} of {lines}", { from: number(from), to: number(to), lines: number(lines) }) : n(lines, "{n} line", "{n} lines");
    return `${shown}, ${size(bytes ?? 0)}`;
  },
  search_files: ({ matches, files }) =>
    matches === undefined ? "" : t("{matches} in {files}", { matches: n(matches, "{n} match", "{n} matches"), files: n(files, "{n} file", "{n} files") }),
  ask_user: ({ answer }) => (answer ? cut(`“${answer}”`, 300) : ""),
  run_command: ({ exit_status: status, changed }) =>
    status === undefined ? "" : `${t("Exit status {status}", { status })}${changed ? `, ${n(changed, "{n} file changed", "{n} files changed")}` : ""}`,
  fetch_url: ({ status, bytes }) => (status === undefined ? "" : `${t("Status {status}", { status })}, ${size(bytes ?? 0)}`),
  write_file: ({ bytes }) => (bytes === undefined ? "" : t("Written, {size}", { size: size(bytes) })),
  memory_write: ({ bytes }) => (bytes === undefined ? "" : t("Written, {size}", { size: size(bytes) })),
  expand_skill: ({ source }) => ({ workspace: t("From the workspace"), server: t("From the server"), "built-in": t("Comes with Pilothouse") })[source] ?? "",
  edit_file: ({ bytes }) => (bytes === undefined ? "" : t("Written, {size}", { size: size(bytes) })),
};

/** Results are marked as untrusted for the model; people read what is inside. */
export function unmarked(content) {
  const found = /^<untrusted [^\n]*>\n([\s\S]*)\n<\/untrusted[^\n>]*>(.*)$/.exec(content);
  return found ? found[1].replaceAll("<\\/untrusted", "</untrusted") : content;
}

function firstLine(content) {
  return cut(unmarked(content).split("\n").find((line) => line.trim()) ?? "", 300);
}

export const FILE_ICONS = { csv: "table", xlsx: "table", xls: "table", tsv: "table" };

export function fileIcon(path) {
  return FILE_ICONS[String(path).split(".").at(-1)?.toLowerCase()] ?? "file";
}
