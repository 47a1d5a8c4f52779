// Words, numbers and times in the reader's language. The catalogue comes with the boot object (docs/pages.md).

let strings = {};
let language = "en";

export function speak(boot) {
  strings = boot.strings ?? {};
  language = boot.language ?? "en";
}

/** The text in the reader's language, each {name} replaced. */
export function t(text, values = {}) {
  return fill(lookup(text), values).join("");
}

/** The same as a list for h(): values may be nodes. */
export function rich(text, values) {
  return fill(lookup(text), values);
}

/** Two forms are enough for both languages; the catalogue may say the same for both. */
export function n(count, one, many, values = {}) {
  return fill(lookup(count === 1 ? one : many), { n: number(count), ...values }).join("");
}

function lookup(text) {
  return Object.hasOwn(strings, text) ? strings[text] : text;
}

function fill(text, values) {
  const parts = text.split(/(\{\w+\})/).map((part) => {
    const name = part.slice(1, -1);
    return part.startsWith("{") && Object.hasOwn(values, name) ? values[name] : part;
  });
  return parts.map((part, index) => (index % 2 ? part : closed(part, parts[index - 1], parts[index + 1]))); // values stay as they are
}

const HAN = { ends: /\p{Script=Han}$/u, begins: /^\p{Script=Han}/u, away: /^ (?=\p{Script=Han})/u, back: /(?<=\p{Script=Han}) $/u };

/** Chinese has a space beside Latin words only: none stays where a Chinese word was put in. */
function closed(part, before, after) {
  let text = part;
  if (typeof before === "string" && HAN.ends.test(before)) text = text.replace(HAN.away, "");
  return typeof after === "string" && HAN.begins.test(after) ? text.replace(HAN.back, "") : text;
}

/** Sentences one behind the other: Chinese has no space between them. What is empty is left out. */
export function sentences(...parts) {
  return parts.filter(Boolean).join(gap());
}

/** Parts of one line, with the language's comma. What is empty is left out. */
export function listed(...parts) {
  return parts.filter(Boolean).join(comma());
}

/** Between two parts of a line. */
export function gap() {
  return chinese() ? "" : " ";
}

export function comma() {
  return chinese() ? "，" : ", ";
}

function chinese() {
  return language.startsWith("zh");
}

export function number(value, digits = 0) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(value);
}

/** 41.2k, 1.3M: for counts that only need a size. */
export function short(value) {
  if (value < 1000) return number(value);
  return value < 1_000_000 ? `${number(value / 1000, value < 100_000 ? 1 : 0)}k` : `${number(value / 1_000_000, 1)}M`;
}

export function money(value) {
  return number(value, value < 1 ? 4 : 2);
}

export function size(bytes) {
  if (bytes < 1024) return n(bytes, "{n} byte", "{n} bytes");
  const kib = bytes / 1024;
  return kib < 1024 ? `${number(kib, kib < 10 ? 1 : 0)} KB` : `${number(kib / 1024, 1)} MB`;
}

/** 0.04 s, 3.2 s, 41 s, 2 min 5 s: below a minute always seconds, so that lists can be compared at a glance. */
export function seconds(value) {
  if (value < 0.1) return `${number(Math.ceil(value * 100) / 100, 2)} s`;
  if (value < 10) return `${number(value, value < 1 ? 2 : 1)} s`;
  if (value < 60) return `${number(Math.round(value))} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${number(Math.floor(whole / 60))} min ${number(whole % 60)} s`;
  return `${number(Math.floor(whole / 3600))} h ${number(Math.floor((whole % 3600) / 60))} min`;
}

/** 23:43; 1:52:10 */
export function clock(total) {
  const whole = Math.max(0, Math.floor(total));
  const two = (value) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export function time(iso) {
  return new Date(iso).toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit", hour12: false });
}

export function moment(iso) {
  return new Date(iso).toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** The time today, the weekday this week, else the date. */
export function day(iso, now = new Date()) {
  const then = new Date(iso);
  const age = (midnight(now) - midnight(then)) / 86_400_000;
  if (age < 1) return time(iso);
  if (age < 7) return then.toLocaleDateString(language, { weekday: "short" });
  return then.toLocaleDateString(language, { day: "numeric", month: "short" });
}

export function midnight(date) {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

// As `visible` in agent/text.py.
const HIDDEN =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** The text with hidden characters written out, as <202E>: what is decided about must read as it is. */
export function visible(text) {
  const written = (found) => `<${found.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}>`;
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, written);
}

export function cut(text, most) {
  const whole = String(text);
  return whole.length <= most ? whole : `${whole.slice(0, most - 1)}…`;
}
