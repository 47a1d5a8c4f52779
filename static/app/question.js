// The agent's own question: answers to choose from, or one's own words.
import { h } from "./dom.js";
import { t } from "./text.js";

/** {node, read() -> the answer ("" for none), missing()}; `id` makes the fields' names. */
export function answerForm(id, options) {
  const own = h("textarea", { id: `answer-${id}`, rows: "2", maxlength: "10000" });
  const hint = h("p", { class: "hint hint--bad", role: "alert", hidden: true });
  const radios = options.map((option) => h("input", { type: "radio", name: `choice-${id}`, value: option }));
  const choices = radios.map((radio) => h("label", { class: "check" }, radio, h("span", { class: "wrap" }, radio.value)));
  const label = h("label", { for: own.id }, options.length ? t("Or in your words") : t("Your answer"));
  const node = h("form", { class: "appr__note stack--s" }, choices.length ? h("div", { class: "stack--s", role: "radiogroup", "aria-labelledby": `appr-t-${id}` }, choices) : null, h("div", { class: "field" }, label, own), hint);
  node.addEventListener("submit", (event) => event.preventDefault());
  node.addEventListener("change", ({ target }) => {
    if (target.type === "radio") own.value = "";
  });
  node.addEventListener("input", () => {
    hint.hidden = true;
    if (own.value.trim()) for (const radio of radios) radio.checked = false;
  });

  function missing() {
    hint.textContent = t("Choose an answer or write one.");
    hint.hidden = false;
    (radios[0] ?? own).focus();
  }

  return { node, missing, read: () => own.value.trim() || (radios.find((radio) => radio.checked)?.value ?? "") };
}
