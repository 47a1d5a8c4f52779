// The rules that count where the reader works: what they fit, since when, and a button to withdraw those from cards.
import { all, api } from "./api.js";
import { confirmed } from "./chrome.js";
import { button, cell, h, replace } from "./dom.js";
import { standingWords } from "./scope.js";
import { day, listed, n, t } from "./text.js";

/** `parts`: {rows, table, none}; `ctx`: {workspaces, failed(error)}. */
export function ruleList(parts, ctx) {
  async function load() {
    try {
      const items = await all("/api/rules");
      replace(parts.rows, items.map(row));
      parts.none.hidden = items.length > 0;
      parts.table.hidden = items.length === 0;
    } catch (error) {
      ctx.failed(error);
    }
  }

  function row(rule) {
    return h(
      "tr",
      { role: "row" },
      cell(t("Decision"), { allow: t("Allow"), ask: t("Ask"), deny: t("Block") }[rule.decision] ?? rule.decision),
      cell(t("Rule"), h("code", { class: "wrap" }, whatOf(rule))),
      cell(t("Counts in"), rule.scope === "session" ? h("a", { href: `/c/${rule.session_id}` }, t("one session")) : placeOf(rule, ctx)),
      cell(t("Made by"), `${rule.made_by}, ${day(rule.created_at)}`),
      cell(t("Ends"), endOf(rule)),
      h("td", { role: "cell" }, rule.can_revoke ? withdrawal(rule, { ...ctx, done: load }) : null),
    );
  }

  load();
}

/** The button that takes a rule back; `ctx`: {failed(error), done()}. */
export function withdrawal(rule, ctx) {
  const remove = async () => {
    if (!(await confirmed(t("Withdraw this rule?"), t("{rule}: from now on it is decided without it, in running tasks too.", { rule: whatOf(rule) }), t("Withdraw")))) return;
    try {
      await api("DELETE", `/api/rules/${rule.id}`);
    } catch (error) {
      ctx.failed(error);
    }
    await ctx.done();
  };
  return button(t("Withdraw"), { kind: "btn--quiet btn--small btn--no", "aria-label": t("Withdraw {rule}", { rule: whatOf(rule) }), onclick: remove });
}

/** Where it counts; `session` is the one that the reader is in, if any. */
export function placeOf(rule, { workspaces, session = null }) {
  if (rule.scope === "global") return t("everywhere");
  if (rule.scope === "task") return session ? t("this task") : t("one task");
  if (rule.scope === "session") return session ? t("this session") : t("one session");
  return workspaces.find(({ id }) => id === rule.workspace_id)?.name ?? t("a workspace");
}

/** A card's rule in the words that stood on the card; an administrator's by its patterns. */
export function whatOf(rule) {
  if (rule.made_from && rule.note) return standingWords(rule.note);
  const parts = [rule.tool || rule.capability || "*", rule.path, rule.host, rule.command].filter(Boolean);
  return rule.note ? `${parts.join(" · ")} (${rule.note})` : parts.join(" · ");
}

function endOf(rule) {
  const uses = rule.max_uses === null ? "" : n(rule.max_uses - rule.used, "{n} use left", "{n} uses left");
  return listed(uses, rule.expires_at && day(rule.expires_at)) || t("never");
}
