// How far an answer reaches: once, or as a rule, whose words come from the server and stand here before it is made.
import { h, say } from "./dom.js";
import { t } from "./text.js";

/** {node, value(), show(standing)}; `onChange` when another reach is chosen. Null where only "once" is offered. `all`:
 *  what is offered to those who may choose everything. */
export function scopeChoice(approval, onChange, all = approval.scopes) {
  const offered = approval.scopes ?? ["once"];
  if (offered.length < 2 || !approval.standing) return null;
  const withheld = all.includes("always") && !offered.includes("always");
  const name = `scope-${approval.id}`;
  const radios = offered.map((scope) => h("input", { type: "radio", name, value: scope, checked: scope === "once" }));
  const labels = radios.map((radio) => h("label", {}, radio, reachWord(radio.value)));
  const hint = h("p", { class: "hint", "aria-live": "polite" });
  const node = h("div", { class: "appr__scope" }, h("fieldset", { class: "segs" }, h("legend", { class: "sr" }, t("How far does your answer reach?")), labels), hint, withheld ? h("p", { class: "hint" }, t("The workspace’s owner and its approvers may answer for always.")) : null);
  let standing = approval.standing;

  const value = () => radios.find((radio) => radio.checked).value;

  /** Edited arguments have another rule, or none: then an answer counts once. */
  function show(next) {
    standing = next;
    if (!standing) radios[0].checked = true;
    for (const radio of radios) radio.disabled = !standing && radio.value !== "once";
    say(hint, reachWords(value(), standing));
  }

  node.addEventListener("change", () => {
    show(standing);
    onChange();
  });
  show(standing);
  return { node, value, show };
}

function reachWord(scope) {
  return { once: t("This once"), task: t("This task"), session: t("This session"), always: t("Always") }[scope] ?? scope;
}

function reachWords(scope, standing) {
  const what = standingWords(standing);
  return (
    {
      task: t("Rule: {what}. Your answer counts for the rest of this task; nobody is asked again.", { what }),
      session: t("Rule: {what}. Your answer counts in this session; nobody is asked again.", { what }),
      always: t("Rule: {what}. Your answer counts in the whole workspace until it is withdrawn in the settings.", { what }),
    }[scope] ?? t("Exactly this call, against exactly this content.")
  );
}

/** What a rule made from a card fits, as the server says it: the tool's name, and where. */
export function standingWords(standing) {
  const [, exact, tool, how, where] = /^(?:exactly this call of (\S+)|(\S+) (on|to) (.+))$/s.exec(standing ?? "") ?? [];
  if (exact) return t("exactly this call of {tool}", { tool: exact });
  if (how === "on") return t("{tool} on {path}", { tool, path: where });
  return how ? t("{tool} to {host}", { tool, host: where }) : standing;
}

export function approveWord(scope, edited) {
  if (edited) {
    return { task: t("Approve the edited call for this task"), session: t("Approve the edited call for this session"), always: t("Approve the edited call always") }[scope] ?? t("Approve the edited call once");
  }
  return { task: t("Approve for this task"), session: t("Approve for this session"), always: t("Approve always") }[scope] ?? t("Approve once");
}

export function rejectWord(scope) {
  return { task: t("Reject for this task"), session: t("Reject for this session"), always: t("Reject always") }[scope] ?? t("Reject");
}

/** Of an answer that was given; "" for once. */
export function reachOf({ scope }) {
  return { task: t("for this task"), session: t("for this session"), always: t("always") }[scope] ?? "";
}
