// Sentences that the server makes, in the reader's language. They come in English; the boot object's `told` has them as
// they are made, with {name} for what differs. As tasks/told.py, whose rules these are.

const NUMBERS = new Set(["n", "m", "used", "limit", "more", "mb", "seconds", "port", "done"]);
const MOST = 4000; // characters; longer ones are nothing that the server says
const QUOTED = "said";
const WORDS = new Set(["scope", "status", "what"]);
const NO_WORDS = new Set(["── command", "── what the line runs", "── arguments, as they are sent", "── what it changed"]); // what follows is not the server's

let catalogue = {};
let patterns = null;

export function hear(boot) {
  catalogue = boot.told ?? {};
  patterns = null;
}

/** What the server said: looked up whole, then sentence by sentence; what is not there stays in English. */
export function told(text) {
  const given = String(text ?? "");
  if (given.length > MOST) return given;
  const found = whole(given);
  if (found !== null || !Object.keys(catalogue).length) return found ?? given;
  return given
    .split(/(?<=[.?!]) /)
    .map((sentence) => whole(sentence) ?? ` ${sentence}`)
    .join("")
    .trim();
}

/** Evidence that is no diff: its headings, and the lines below those under which only the server speaks. */
export function toldEvidence(text) {
  let heading = "";
  return text
    .split("\n")
    .map((line) => {
      if (line.startsWith("── ")) heading = line;
      return NO_WORDS.has(heading) && line !== heading ? line : (whole(line) ?? line);
    })
    .join("\n");
}

function whole(text) {
  if (Object.hasOwn(catalogue, text) && !text.includes("{")) return catalogue[text];
  patterns ??= compiled();
  for (const { pattern, translated } of patterns) {
    const groups = pattern.exec(text)?.groups;
    if (groups && Object.entries(groups).every(([name, value]) => !WORDS.has(name) || Object.hasOwn(catalogue, value))) {
      return translated.replace(/\{(\w+)\}/g, (_, name) => valueOf(name, groups[name]));
    }
  }
  return null;
}

function valueOf(name, value) {
  if (WORDS.has(name)) return catalogue[value];
  return name === "why" ? told(value) : value;
}

/** Those with the most words of their own first. */
function compiled() {
  const texts = Object.keys(catalogue).filter((text) => text.includes("{"));
  const own = (text) => text.replace(/\{\w+\}/g, "").length;
  texts.sort((a, b) => own(b) - own(a) || (a < b ? -1 : 1));
  return texts.map((text) => ({ pattern: patternOf(text), translated: catalogue[text] }));
}

function valuePattern(name) {
  if (NUMBERS.has(name)) return "[\\d.,e+]+";
  return name === QUOTED ? ".+" : "(?:(?![.?!] ).)+?";
}

function patternOf(text) {
  const parts = text.split(/\{(\w+)\}/).map((part, place) => {
    if (place % 2 === 0) return part.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
    return `(?<${part}>${valuePattern(part)})`;
  });
  return new RegExp(`^(?:${parts.join("")})$`, "su");
}
