// Which of the waiting decisions are listed: by what they are and where they come from. The choice is in the address,
// so that it can be kept and sent.
import { h, replace } from "./dom.js";
import { t } from "./text.js";

const FIELDS = {
  kind: { name: () => t("Kind"), value: (item) => item.kind, label: (item) => kindWord(item.kind) },
  tool: { name: () => t("Tool"), value: (item) => item.name, label: (item) => item.name },
  workspace: { name: () => t("Workspace"), value: (item) => item.workspace_id, label: (item) => item.workspace_name },
  trigger: { name: () => t("Started by"), value: (item) => item.trigger, label: (item) => triggerWord(item.trigger) },
  session: { name: () => t("Session"), value: (item) => item.session_id, label: (item) => item.session_title || t("Untitled") },
};

function kindWord(kind) {
  return { call: t("Call"), unknown_effect: t("Outcome unknown"), question: t("Question"), limit: t("Limit") }[kind] ?? kind;
}

export function triggerWord(trigger) {
  return { chat: t("Chat"), api: t("API"), agui: "AG-UI", webhook: t("Webhook"), cron: t("Schedule"), command: t("Command") }[trigger] ?? trigger;
}

/** {keep(item), offer(items), active()}; `onChange` when somebody chose. */
export function inboxFilter(form, onChange) {
  const asked = new URLSearchParams(location.search);
  const chosen = Object.fromEntries(Object.keys(FIELDS).map((field) => [field, asked.get(field) ?? ""]));
  const selects = Object.fromEntries(Object.keys(FIELDS).map((field) => [field, select(field)]));
  replace(form, ...Object.values(selects).map((each) => each.node));

  function select(field) {
    const box = h("select", { id: `filter-${field}`, name: field });
    box.addEventListener("change", () => {
      chosen[field] = box.value;
      remember();
      onChange();
    });
    return { box, node: h("div", { class: "field" }, h("label", { for: box.id }, FIELDS[field].name()), box) };
  }

  function remember() {
    const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
  }

  const active = () => Object.values(chosen).some(Boolean);
  return {
    active,
    keep: (item) => Object.entries(FIELDS).every(([field, { value }]) => !chosen[field] || value(item) === chosen[field]),
    /** What there is to choose now; a choice stays although nothing fits it any more. */
    offer(items) {
      form.hidden = items.length < 2 && !active();
      for (const [field, { value, label }] of Object.entries(FIELDS)) {
        const found = new Map(items.map((item) => [value(item), label(item)]));
        if (chosen[field] && !found.has(chosen[field])) found.set(chosen[field], t("Nothing left"));
        const options = [...found].map(([key, text]) => h("option", { value: key, selected: key === chosen[field] }, text));
        const { box, node } = selects[field];
        node.hidden = found.size < 2 && !chosen[field];
        const said = JSON.stringify([...found]);
        if (box.dataset.said === said) continue; // an open list is not disturbed
        box.dataset.said = said;
        replace(box, h("option", { value: "" }, t("All")), ...options);
      }
    },
  };
}
