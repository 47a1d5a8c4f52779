// A unified diff as a table: line numbers, signs, and the words that changed. Parsing is pure.
import { h } from "./dom.js";
import { n, number, t, visible } from "./text.js";
import { toldEvidence } from "./told.js";

const NOT_A_DIFF = "──"; // evidence that is shown as it is, whatever its lines look like
const WORD = /[\p{L}\p{N}_]+(?:[.,:'’-][\p{L}\p{N}_]+)*|\s+|[^\s\p{L}\p{N}_]/gu; // "4,846.40" is one word
const MOST_WORDS = 200; // per line; longer ones are tinted as a whole
const MOST_ROWS = 400; // shown at once; the rest on request

/** {path, isNew, added, removed, rows, note}; a row is {kind: h|same|add|del, old?, new?, text, parts?}. Without rows it is the note alone. */
export function parseDiff(evidence) {
  const diff = visible(evidence);
  const found = { path: "", isNew: false, added: 0, removed: 0, rows: [], note: "" };
  if (diff.startsWith(NOT_A_DIFF)) return { ...found, note: diff };
  const at = { old: 0, new: 0, left: 0 };
  for (const line of diff.replace(/\n$/, "").split("\n")) take(found, at, line);
  tint(found.rows);
  return found;
}

function take(found, at, line) {
  const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
  if (hunk) {
    startHunk(found, at, hunk);
  } else if (!at.inside) {
    if (line.startsWith("--- ")) found.isNew = line === "--- /dev/null";
    else if (line.startsWith("+++ ")) found.path = line.slice(4).replace(/^b\//, "");
    else if (line) found.note += `${found.note && "\n"}${line}`;
  } else {
    takeLine(found, at, line);
  }
}

function startHunk(found, at, [, old, , fresh]) {
  const skipped = Number(old) - at.old;
  at.old = Number(old);
  at.new = Number(fresh);
  found.rows.push({ kind: "h", skipped: at.inside ? skipped : Math.max(0, Number(old) - 1), first: !at.inside });
  at.inside = true;
}

function takeLine(found, at, line) {
  const [sign, text] = [line[0], line.slice(1)];
  if (sign === "+") {
    found.rows.push({ kind: "add", new: at.new++, text });
    found.added += 1;
  } else if (sign === "-") {
    found.rows.push({ kind: "del", old: at.old++, text });
    found.removed += 1;
  } else if (sign === " ") {
    found.rows.push({ kind: "same", old: at.old++, new: at.new++, text });
  } else {
    found.rows.push({ kind: "h", text: line.replace(/^\\ /, "") });
  }
}

/** Pair the n-th removed line of a run with its n-th added one and mark the words that differ. */
function tint(rows) {
  let index = 0;
  while (index < rows.length) {
    const dels = run(rows, index, "del");
    const adds = run(rows, index + dels, "add");
    for (let pair = 0; pair < Math.min(dels, adds); pair += 1) tintPair(rows[index + pair], rows[index + dels + pair]);
    index += Math.max(1, dels + adds);
  }
}

function run(rows, start, kind) {
  let end = start;
  while (rows[end]?.kind === kind) end += 1;
  return end - start;
}

function tintPair(del, add) {
  const [before, after] = [del.text.match(WORD) ?? [], add.text.match(WORD) ?? []];
  if (before.length > MOST_WORDS || after.length > MOST_WORDS) return;
  const [lost, fresh, kept] = compare(before, after);
  if (kept === 0) return; // nothing in common: the row's own tint says it
  bridge(before, lost);
  bridge(after, fresh);
  del.parts = merged(before, lost);
  add.parts = merged(after, fresh);
}

/** Longest common subsequence of two short lists of words. */
export function compare(before, after) {
  const width = after.length + 1;
  const best = new Uint16Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      best[i * width + j] =
        before[i] === after[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const [lost, fresh] = [before.map(() => true), after.map(() => true)];
  let [i, j, kept] = [0, 0, 0];
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) {
      lost[i] = fresh[j] = false;
      if (before[i].trim()) kept += 1;
      i += 1;
      j += 1;
    } else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return [lost, fresh, kept];
}

/** A blank between two changed words belongs to the change. */
function bridge(words, changed) {
  words.forEach((word, index) => {
    if (!word.trim() && changed[index - 1] && changed[index + 1]) changed[index] = true;
  });
}

function merged(words, changed) {
  const parts = [];
  words.forEach((word, index) => {
    const last = parts.at(-1);
    if (last && last.changed === changed[index]) last.text += word;
    else parts.push({ text: word, changed: changed[index] });
  });
  return parts;
}

// ── the table ───────────────────────────────────────────────────────────────────────────────────

export function diffView(diff, tools = []) {
  const found = parseDiff(diff);
  if (!found.rows.length) return plainView(found, tools);
  const body = h("tbody", {});
  const counts = n(found.added, "{n} line added", "{n} lines added");
  const gone = n(found.removed, "{n} removed", "{n} removed");
  const node = h(
    "div",
    { class: "diff" },
    h("div", { class: "diff__h" }, h("span", { class: "strong mono" }, found.path), countsOf(found), tools.length ? h("div", { class: "btn-row" }, tools) : null),
    h(
      "table",
      {},
      h("caption", { class: "sr" }, t("Proposed change: {added}, {removed}", { added: counts, removed: gone })),
      h("colgroup", {}, h("col", { class: "ln" }), h("col", { class: "ln" }), h("col", { class: "sg" }), h("col", {})),
      h("thead", { class: "sr" }, h("tr", {}, [t("Old line"), t("New line"), t("Change"), t("Text")].map((word) => h("th", { scope: "col" }, word)))),
      body,
    ),
    found.note ? h("p", { class: "hint wrap diff__note" }, found.note) : null,
  );
  fill(node, body, found.rows);
  return node;
}

function plainView(found, tools) {
  const what = found.path ? h("span", { class: "strong mono" }, found.path) : h("span", { class: "strong" }, t("What would happen"));
  const head = h("div", { class: "diff__h" }, what, tools.length ? h("div", { class: "btn-row" }, tools) : null);
  return h("div", { class: "diff" }, head, h("pre", { class: "mono wrap diff__plain", tabindex: "0" }, toldEvidence(found.note)));
}

function fill(node, body, rows) {
  body.append(...rows.slice(0, MOST_ROWS).map(rowView));
  const rest = rows.slice(MOST_ROWS);
  if (!rest.length) return;
  const more = h("button", { type: "button", class: "btn btn--quiet btn--small diff__more" }, n(rest.length, "Show {n} more line", "Show {n} more lines"));
  more.addEventListener("click", () => {
    body.append(...rest.map(rowView));
    more.remove();
  });
  node.append(more);
}

export function countsOf({ added, removed }) {
  return h("span", {}, h("span", { class: "add" }, `+${number(added)}`), " ", h("span", { class: "del" }, `−${number(removed)}`));
}

function rowView(row) {
  if (row.kind === "h") return h("tr", { class: "h" }, h("td", { colspan: "4" }, row.text ?? skippedText(row)));
  const kind = { add: "a", del: "d" }[row.kind];
  const sign = { add: ["+", h("span", { class: "sr" }, t("added"))], del: ["−", h("span", { class: "sr" }, t("removed"))] }[row.kind] ?? "";
  return h(
    "tr",
    { class: kind },
    h("td", { class: "ln" }, row.old ?? ""),
    h("td", { class: "ln" }, row.new ?? ""),
    h("td", { class: "sg" }, sign),
    h("td", { class: "tx" }, row.parts ? row.parts.map((part) => wordView(part, row.kind)) : row.text),
  );
}

function wordView(part, kind) {
  return part.changed ? h(kind === "add" ? "ins" : "del", {}, part.text) : part.text;
}

function skippedText({ skipped, first }) {
  if (first && skipped === 0) return t("From the first line");
  return n(Math.max(0, skipped), "{n} unchanged line", "{n} unchanged lines");
}
