// What people read of a goal. Text that a goal brings along stands between marks, which are for the model (tasks/goals.py).
import { glyph, h } from "./dom.js";
import { t, visible } from "./text.js";

const OPENING = /<untrusted source="([\w.:/-]{0,64})" id="([0-9a-f]{16})">\n/g;
const LEADS = { webhook: "What was delivered:", application: "Context from the application:" };

/** [{text, source}]: `source` is null for what the asker said. As `pieces` in tasks/goals.py. */
export function piecesOf(goal) {
  const pieces = [];
  let at = 0;
  OPENING.lastIndex = 0;
  for (let found = OPENING.exec(goal); found; found = OPENING.exec(goal)) {
    const [opening, source, id] = found;
    const closing = `\n</untrusted id="${id}">`;
    const from = found.index + opening.length;
    const end = goal.indexOf(closing, from);
    if (end < 0) continue;
    own(pieces, goal.slice(at, found.index), LEADS[source] ?? "");
    pieces.push({ text: goal.slice(from, end).replace(/<(\s*)\\\/(\s*untrusted)/gi, "<$1/$2"), source });
    at = end + closing.length;
    OPENING.lastIndex = at;
  }
  own(pieces, goal.slice(at), "");
  return pieces;
}

function own(pieces, text, lead) {
  const stripped = text.replace(/^\n+|\n+$/g, "");
  const said = lead && stripped.endsWith(lead) ? stripped.slice(0, -lead.length).replace(/\n+$/, "") : stripped;
  if (said) pieces.push({ text: said, source: null });
}

/** All of it as one text, for a line. */
export function plainGoal(goal) {
  return piecesOf(goal).map(({ text, source }) => (source === null ? text : `${labelOf(source)}:\n${text}`)).join("\n\n");
}

/** The asker's words, and whatever came along in a box of its own. */
export function goalView(goal) {
  return piecesOf(goal).flatMap(({ text, source }) => (source === null ? saidView(text) : [boxOf(text, labelOf(source))]));
}

const ATTACHED = /(?:^|\n\n)Attached files:\n(- [^\n]+(?:\n- [^\n]+)*)$/;

/** {words, files}: the files that a goal or a message names at its end, as `tasks/service.py` and the composer write them. */
export function attachedOf(text) {
  const found = ATTACHED.exec(text);
  return found ? { words: text.slice(0, found.index), files: found[1].split("\n").map((line) => line.slice(2)) } : { words: text, files: [] };
}

/** What somebody said, and the files that they gave with it. */
export function saidView(text) {
  const { words, files } = attachedOf(text);
  const chips = files.map((path) => h("li", { class: "chip" }, glyph("file"), h("bdi", {}, visible(path))));
  return [words ? h("p", { class: "said" }, words) : null, chips.length ? h("ul", { class: "named", "aria-label": t("Attached files") }, chips) : null];
}

function boxOf(text, label) {
  return h("figure", { class: "code code--brought" }, h("figcaption", {}, h("span", {}, label), h("span", { class: "muted" }, t("data, not a request"))), h("pre", { tabindex: "0", role: "region", "aria-label": label }, visible(text)));
}

function labelOf(source) {
  return { webhook: t("What was delivered"), application: t("Context from the application") }[source] ?? t("Text from elsewhere");
}
