// What the tasks of this session may do: each kind of call and what says so, then the rules, with a way to withdraw them.
import { all, get } from "./api.js";
import { glyph, h, replace } from "./dom.js";
import { placeOf, whatOf, withdrawal } from "./rules.js";
import { day, sentences, t } from "./text.js";
import { told } from "./told.js";

const VERDICTS = { allow: ["check", "ok"], ask: ["flag", "wait"], deny: ["deny", "risk"] };
const SWITCHED = ["shell:execute", "web:network"]; // not there at all while the server has them off

/** `parts`: {section, mode, body}; `ctx`: {session, workspaces, failed(error)}. {draw(state)}. */
export function policyPanel(parts, ctx) {
  let known = null; // {policy, rules}
  let state = null;
  let seen = null;
  let loading = false;
  let missed = false; // it became another while it was asked for: the answer may be from before

  /** What is shown may have become another: an answer left a rule, a task began or ended. */
  function draw(next) {
    state = next;
    const now = next.order.map((id) => signOf(next.tasks[id])).join();
    if (now === seen) return;
    seen = now;
    load();
  }

  async function load() {
    if (!parts.section.open || !parts.section.checkVisibility()) return;
    missed = loading;
    if (loading) return;
    loading = true;
    try {
      const [policy, rules] = await Promise.all([get(`/api/sessions/${ctx.session.id}/policy`), all(`/api/rules?session_id=${ctx.session.id}`)]);
      known = { policy, rules };
      show();
    } catch (error) {
      if (!known) replace(parts.body, h("p", { class: "hint" }, error.unsent ? t("The server does not answer. Trying again.") : error.message));
      seen = null;
    } finally {
      loading = false;
      if (missed) load();
    }
  }

  function show() {
    const { policy, rules } = known;
    const counting = rules.filter((rule) => !state?.tasks[rule.task_id]?.ended);
    parts.mode.textContent = t("Mode: {mode}", { mode: policy.mode });
    replace(
      parts.body,
      h("ul", { class: "may" }, groupsOf(policy.tools).map((tools) => toolRow(tools, counting)), missingOf(policy.tools).map(missingRow)),
      counting.length ? h("h3", { class: "may__h" }, t("Rules")) : null,
      counting.length ? h("ul", { class: "may" }, counting.map(ruleRow)) : null,
      h("p", { class: "hint" }, modeWords(policy), " ", h("a", { href: "/settings#policy" }, t("All of the policy"))),
    );
  }

  function ruleRow(rule) {
    const where = placeOf(rule, ctx);
    const withdraw = rule.can_revoke ? withdrawal(rule, { ...ctx, done: load }) : null;
    return h(
      "li",
      {},
      h("span", {}, h("span", { class: "wrap" }, whatOf(rule)), h("small", {}, t("{place}, made by {who}, {day}", { place: where, who: rule.made_by, day: day(rule.created_at) }))),
      h("span", { class: "may__do" }, verdict(rule.decision), withdraw),
    );
  }

  const again = () => {
    seen = null;
    if (state) draw(state);
  };
  parts.section.addEventListener("toggle", again);
  parts.section.closest("[popover]")?.addEventListener("toggle", again);
  document.addEventListener("visibilitychange", () => document.hidden || again());
  return { draw };
}

function signOf(task) {
  const reaches = Object.values(task.approvals).filter(({ scope }) => scope && scope !== "once").length;
  return `${task.id} ${task.ended} ${reaches}`;
}

/** Tools that share everything stand in one row. */
function groupsOf(tools) {
  const groups = new Map();
  for (const tool of tools) {
    const { name, reason, ...same } = tool;
    const key = JSON.stringify({ ...same, rule: same.rule_id });
    groups.set(key, [...(groups.get(key) ?? []), tool]);
  }
  return [...groups.values()];
}

function toolRow(tools, rules) {
  const [tool] = tools;
  const notes = [sourceOf(tool, rules), tool.unattended === tool.decision ? "" : awayWords(tool.unattended), ...demandsOf(tool)].filter(Boolean);
  return h(
    "li",
    {},
    h("span", {}, capabilityWord(tool.capability), h("small", {}, tools.map(({ name }) => [h("code", {}, name), " "]), notes.join(" · "))),
    verdict(tool.decision),
  );
}

function verdict(decision) {
  const [symbol, kind] = VERDICTS[decision] ?? VERDICTS.deny;
  const word = { allow: t("Allowed"), ask: t("Asks you") }[decision] ?? t("Blocked");
  return h("span", { class: `mark mark--${kind}` }, glyph(symbol), word);
}

function sourceOf({ source, rule, rule_id: id }, rules) {
  if (source === "mode") return t("by the mode");
  if (source === "default") return t("by default");
  const found = rules.find((each) => each.id === id);
  return found ? t("by a rule: {rule}", { rule: whatOf(found) }) : told(rule);
}

function awayWords(decision) {
  return { allow: t("schedules and webhooks: allowed"), ask: t("schedules and webhooks: asks") }[decision] ?? t("schedules and webhooks: blocked");
}

function demandsOf({ approvers, another_person: another, votes }) {
  return [
    approvers ? t("Only members of {group} approve it.", { group: approvers }) : "",
    another ? t("Whoever asked for the task does not approve it.") : "",
    votes > 1 ? t("Two people must approve it.") : "",
  ];
}

function missingOf(tools) {
  return SWITCHED.filter((capability) => !tools.some((tool) => tool.capability === capability));
}

function missingRow(capability) {
  return h("li", {}, h("span", {}, capabilityWord(capability), h("small", {}, t("switched off on this server"))), h("span", { class: "mark" }, glyph("deny"), t("Not there")));
}

function capabilityWord(capability) {
  return (
    {
      "file:read": t("Read and search files"), "file:write": t("Write and change files"), "shell:execute": t("Run commands"),
      "web:network": t("Fetch pages of the web"), "user:read": t("Ask a person something"),
      "memory:write": t("Change what later tasks remember"), "skill:read": t("Read skills"),
    }[capability] ?? h("code", {}, capability)
  );
}

function modeWords({ mode, mode_of: of, unattended_mode: away }) {
  const what = { ask: t("A person decides about every effect."), deny: t("What would be asked is refused."), read_only: t("It reads, and nothing else.") }[mode] ?? mode;
  const who = { workspace: t("The workspace says so."), session: t("This session says so.") }[of] ?? t("The server says so.");
  return sentences(what, who, away === mode ? "" : t("For schedules and webhooks the mode is {mode}.", { mode: away }));
}
