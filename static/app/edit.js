// The arguments of a call as fields. Reads them back as the same kinds of values; says which one it cannot read.
import { button, h } from "./dom.js";
import { t } from "./text.js";

const LONG = 80;
let ids = 0;

/** {node, read() -> {value} or {problem}, reset(), invalid(text)}; `onEdit` at every change. */
export function editForm(args, { onEdit, onPreview }) {
  const fields = Object.entries(args).map(([name, value]) => field(name, value));
  const hint = h("p", { class: "hint hint--bad", role: "alert", hidden: true });
  const preview = button(t("Preview the new diff"), { kind: "btn--small", onclick: () => onPreview() });
  const undo = button(t("Undo my edits"), { kind: "btn--small btn--quiet", onclick: () => reset() });
  const node = h(
    "form",
    { class: "stack" },
    fields.map((each) => each.node),
    hint,
    h("div", { class: "btn-row" }, preview, undo, h("span", { class: "hint" }, t("Edited calls are judged by policy again. Both versions are logged."))),
  );
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    onPreview();
  });
  node.addEventListener("input", () => {
    invalid("");
    onEdit(true);
  });

  function reset() {
    for (const each of fields) each.reset();
    invalid("");
    onEdit(false);
  }

  function invalid(text) {
    hint.textContent = text;
    hint.hidden = !text;
  }

  function read() {
    const value = {};
    for (const each of fields) {
      const found = each.read();
      if (found.problem) return found;
      if ("value" in found) value[each.name] = found.value;
    }
    return { value };
  }

  // Whoever was quick enough to be in a field already stays there: what they type goes nowhere else.
  const first = () => node.contains(document.activeElement) || fields[0]?.input.focus();
  return { node, read, reset, invalid, first };
}

function field(name, value) {
  if (typeof value === "boolean") return checkField(name, value);
  const id = nextId();
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const long = text.length > LONG || text.includes("\n");
  const rows = Math.min(16, Math.max(3, text.split("\n").length));
  const input = long ? h("textarea", { id, class: "mono", rows, spellcheck: "false" }) : h("input", { id, class: "mono", spellcheck: "false", autocomplete: "off" });
  input.value = text;
  const node = h("div", { class: "field" }, h("label", { for: id, class: "mono" }, name), input);
  const read = typeof value === "string" ? () => ({ value: input.value }) : () => parsed(name, input.value);
  return { name, node, input, read, reset: () => (input.value = text) };
}

function checkField(name, value) {
  const input = h("input", { type: "checkbox", id: nextId() });
  input.checked = value;
  const node = h("label", { class: "check" }, input, h("code", {}, name));
  return { name, node, input, read: () => ({ value: input.checked }), reset: () => (input.checked = value) };
}

/** Numbers, lists and objects are written as JSON. */
function parsed(name, text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { problem: t("{name} is not valid JSON.", { name }) };
  }
}

function nextId() {
  ids += 1;
  return `edit-${ids}`;
}
