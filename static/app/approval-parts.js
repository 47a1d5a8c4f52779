// What a decision shows: head, facts, evidence, fields, buttons. Values in, elements out; approval.js has the rules.
import { button, glyph, h, iconButton, svg } from "./dom.js";
import { diffView } from "./diff.js";
import { argumentsView } from "./calls.js";
import { approveWord, reachOf, rejectWord } from "./scope.js";
import { decisionTitle } from "./sentences.js";
import { listed, moment, sentences, time, t } from "./text.js";
import { told } from "./told.js";

const BARS = [[0, 8, 4], [5, 4, 8], [10, 0, 12]];

export function levelView(risk) {
  const height = { low: 1, medium: 2, high: 3 }[risk] ?? 3;
  const bars = BARS.map(([x, y, high], index) => svg("rect", { x, y, width: 3, height: high, ...(index < height ? {} : { class: "off" }) }));
  const word = { low: t("Low"), medium: t("Medium"), high: t("High") }[risk] ?? risk;
  return h("span", { class: `level level--${risk}` }, svg("svg", { viewBox: "0 0 13 12", "aria-hidden": "true" }, ...bars), word);
}

// ── head ────────────────────────────────────────────────────────────────────────────────────────

export function headOf(card, open) {
  const { approval } = card;
  const eye = eyebrow(card, open);
  return [
    h(
      "header",
      { class: "appr__h" },
      h("p", { class: "appr__eye" }, glyph(eye.icon), eye.text),
      h("p", { class: open ? "appr__left" : "appr__left muted" }, timeOf(approval, open), open && approval.expires_at && mayDecide(card) ? moreTime(card) : null),
      (card.title = titleOf(card, open)),
      h("p", { class: "appr__why" }, whyOf(card, open)),
    ),
    open && approval.expires_at ? gaugeOf(card) : null,
  ];
}

function titleOf(card, open) {
  const { approval, phase } = card;
  return h("h3", { id: `appr-t-${approval.id}` }, phase === "unsent" ? t("Your decision did not reach the server") : decisionTitle(open ? asShown(card) : approval));
}

/** The call that a yes would be for now: as it was asked about, or the edited one that was previewed. */
function asShown({ approval, edited, shown }) {
  return shown ? { ...approval, arguments: edited, diff: shown.diff, arguments_digest: shown.arguments_digest } : approval;
}

function timeOf(approval, open) {
  if (!open) return approval.resolved_at ? time(approval.resolved_at) : "";
  if (!approval.expires_at) return t("No time limit");
  const silence = approval.kind === "question" ? t(", then it goes on without an answer") : t(", then rejected by itself");
  return [h("span", { class: "num", "data-left": "" }), h("span", { class: "sr" }, silence)];
}

function moreTime(card) {
  return iconButton("plus", t("More time"), { kind: "btn--quiet btn--small", disabled: card.busy, onclick: () => card.snooze() });
}

function gaugeOf({ approval }) {
  const whole = (Date.parse(approval.expires_at) - Date.parse(approval.created_at)) / 1000;
  return h("progress", { class: "gauge gauge--wait gauge--thin", max: Math.max(1, whole), value: whole, "data-gauge": "", "aria-label": t("Time left to decide") });
}

function eyebrow({ approval, phase }, open) {
  if (open && phase === "unsent") return { icon: "cross", text: t("Not sent") };
  if (open) return openEyebrow(approval);
  if (approval.lost) return { icon: "user", text: t("Decided by somebody else") };
  if (approval.kind === "question" && approval.status === "approved") return { icon: "check", text: t("Answered") };
  return (
    {
      approved: { icon: "check", text: t("Approved") },
      rejected: { icon: "cross", text: t("Rejected") },
      expired: { icon: "hour", text: t("Expired") },
      stale: { icon: "retry", text: t("Asked again") },
    }[approval.status] ?? { icon: "stop", text: t("Withdrawn") }
  );
}

function openEyebrow({ kind, replaces }) {
  if (kind === "unknown_effect") return { icon: "risk", text: t("Outcome unknown") };
  if (kind === "question") return { icon: "ask", text: t("Asks you") };
  if (kind === "limit") return { icon: "gauge", text: t("Limit reached") };
  return replaces ? { icon: "retry", text: t("Asked again") } : { icon: "flag", text: t("Waits for you") };
}

function whyOf({ approval, phase, refusal }, open) {
  if (open && phase === "unsent") return t("Nothing was decided. Pressing again is safe: a decision counts once.");
  if (open && phase === "refused") return refusalWords(refusal);
  if (open) return openWhy(approval);
  const who = approval.resolved_by ?? t("Somebody");
  if (approval.lost) return lostWhy(approval, who);
  if (approval.kind === "question") return questionWhy(approval, who);
  return (
    {
      approved: reachOf(approval) ? t("{who} approved it {reach}.", { who, reach: reachOf(approval) }) : t("{who} approved it.", { who }),
      rejected: approval.comment ? t("{who} rejected it: “{comment}”. Nothing was done.", { who, comment: approval.comment }) : t("{who} rejected it. Nothing was done.", { who }),
      expired: t("Nobody answered in time, so it was rejected and nothing was done. The agent knows."),
      stale: t("The file changed after you were asked. What you saw is void; the new question shows the change against the file as it is now."),
    }[approval.status] ?? t("The task ended before anybody decided. Nothing was done.")
  );
}

function questionWhy({ status, answer }, who) {
  return (
    {
      approved: t("{who} answered: “{answer}”", { who, answer }),
      rejected: t("{who} let it decide.", { who }),
      expired: t("Nobody answered in time. The agent knows and goes on without an answer."),
    }[status] ?? t("The task ended before anybody answered.")
  );
}

function lostWhy({ status, comment }, who) {
  const what = status === "approved" ? t("{who} approved it before your answer. Yours was not used.", { who }) : t("{who} rejected it before your answer. Yours was not used.", { who });
  return comment ? `${what} “${comment}”` : what;
}

function openWhy({ kind, reason, replaces, created_at: at }) {
  if (kind === "unknown_effect") return sentences(told(reason), t("It is not repeated without you."));
  if (kind === "question") return t("It cannot go on well without your answer. If nobody answers, it goes on without one.");
  if (replaces) return t("The file changed after you were asked. This is the change against the file as it is now. Nothing has been written yet.");
  if (kind === "call") return sentences(reason && told(reason.replace(/\.?$/, ".")), t("Nothing has happened yet."));
  return told(reason) || t("Asked at {time}.", { time: moment(at) });
}

// ── body ────────────────────────────────────────────────────────────────────────────────────────

export function bodyOf(card, open) {
  const { approval } = card;
  if (!open) return approval.diff ? pastView(approval) : null;
  return approval.kind === "question" ? null : [(card.facts = factsOf(asShown(card)))];
}

function pastView(approval) {
  const details = h("details", { class: "appr__sec appr__past" }, h("summary", {}, glyph("chev"), approval.status === "approved" ? t("What was approved") : t("What would have changed")));
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(diffView(approval.diff)));
  return details;
}

function factsOf({ risk, rule, name, capability, votes, arguments_digest: digest }) {
  return h(
    "dl",
    { class: "kv kv--row appr__facts" },
    fact(t("Risk"), levelView(risk)),
    rule ? fact(t("Why it asks"), told(rule)) : null,
    name ? fact(t("Tool"), [h("code", {}, name), capability ? [" · ", h("code", {}, capability)] : null]) : null,
    votes?.length ? fact(t("Said yes"), votes.map(voteView)) : null,
    digest ? fact(t("Bound to"), h("code", { title: `SHA-256 ${digest}` }, shortDigest(digest))) : null,
  );
}

function voteView({ by, comment, edited_arguments: edited }) {
  const said = listed(by, edited && t("with an edit"), comment && `“${comment}”`);
  return [h("span", {}, sentences(t("{who}.", { who: said }), t("One more person must agree."))), edited ? argumentsView(edited) : null];
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

export function shortDigest(digest) {
  return digest.length > 16 ? `${digest.slice(0, 4)} ${digest.slice(4, 8)} … ${digest.slice(-4)}` : digest;
}

// ── evidence and buttons: one part, so that the bar sticks only while the evidence is on screen ──

export function footOf(card) {
  const { approval, edit, shown } = card;
  if (card.question) return h("div", { class: "appr__body" }, mayApprove(card) ? card.question.node : null, doOf(card));
  const diff = shown?.diff ?? approval.diff;
  return h(
    "div",
    { class: "appr__body" },
    diff ? evidence(card, diff) : h("div", { class: "appr__sec" }, h("h4", {}, t("Arguments")), argumentsView(card.edited ?? approval.arguments)),
    edit && mayApprove(card) ? editSection(card) : null,
    mayDecide(card) && card.scope ? card.scope.node : null,
    mayDecide(card) ? commentOf(card) : null,
    doOf(card),
  );
}

function mayDecide({ rights, ctx }) {
  return rights ? rights.can_decide : ctx.canDecide;
}

function mayApprove(card) {
  return mayDecide(card) && card.rights?.can_approve !== false;
}

/** Who has to say yes, where the reader may only say no. */
function whoApproves({ demands }) {
  if (demands?.group) return t("Only members of the group {group} approve this. You may reject it.", { group: demands.group });
  if (demands?.another_person) return t("You asked for this task: somebody else has to approve it. You may reject it.");
  return t("You may reject this; somebody else has to approve it.");
}

function refusalWords({ code, message, details }) {
  if (code === "not_an_approver" && details.group) return t("Only members of the group {group} approve this.", { group: details.group });
  return (
    {
      not_an_approver: t("Only the workspace’s owner and its approvers decide for all of it. Choose less."),
      own_request: t("You asked for this task: somebody else has to approve it."),
      cannot_run: t("This call cannot run any more. Reject it."),
    }[code] ?? message
  );
}

function doOf(card) {
  if (mayDecide(card)) return (card.foot = buttonsOf(card));
  return h("footer", { class: "appr__do" }, h("p", { class: "hint" }, t("Somebody with the right to decide has to answer.")));
}

/** After an edit: title, facts and buttons say what they are about now. No field moves, so that a composition goes on. */
export function refresh(card) {
  for (const [name, now] of [["title", titleOf(card, true)], ["facts", factsOf(asShown(card))]]) {
    card[name]?.replaceWith(now);
    card[name] &&= now;
  }
  const foot = buttonsOf(card);
  card.foot?.replaceWith(foot);
  card.foot = foot;
  const before = card.evidence;
  const diff = card.shown?.diff ?? card.approval.diff;
  if (before && diff) before.replaceWith(evidence(card, diff));
}

function evidence(card, diff) {
  if (card.evidenceOf !== diff) {
    const copy = button(t("Copy"), { icon: "copy", kind: "btn--quiet btn--small", onclick: () => navigator.clipboard?.writeText(diff) });
    card.evidence = diffView(diff, [copy]);
    card.evidenceOf = diff;
  }
  return card.evidence;
}

function editSection(card) {
  if (!card.editNode) {
    const summary = h("summary", { "aria-keyshortcuts": "e" }, glyph("chev"), t("Edit before approving"), " ", h("kbd", { "aria-hidden": "true" }, "E"));
    card.editNode = h("details", { class: "appr__sec" }, summary, card.edit.node);
    summary.addEventListener("click", () => !card.editNode.open && setTimeout(() => card.edit.first(), 0));
  }
  return card.editNode;
}

function commentOf({ comment }) {
  return h("div", { class: "appr__note field" }, h("label", { for: comment.id }, t("Comment"), " ", h("span", { class: "muted" }, t("sent to the agent, kept in the log"))), comment);
}

function buttonsOf(card) {
  const { approval } = card;
  const buttons = mayApprove(card) ? ({ unknown_effect: unknownButtons, limit: limitButtons, question: questionButtons }[approval.kind] ?? callButtons) : noButtons;
  return h(
    "footer",
    { class: "appr__do" },
    buttons(card),
    h("p", { class: "hint" }, card.busy ? t("Sending…") : askedWords(approval)),
  );
}

function askedWords({ kind, created_at: at }) {
  return kind === "question" ? t("Asked {time}.", { time: time(at) }) : t("Asked {time}. Silence means no.", { time: time(at) });
}

function key(letter) {
  return h("kbd", { "aria-hidden": "true" }, letter.toUpperCase());
}

function act(label, kind, letter, card, decision, more) {
  const props = { type: "button", class: `btn ${kind}`, "aria-keyshortcuts": letter, disabled: card.busy || card.learning, onclick: () => card.decide(decision, more) };
  return h("button", props, label, letter ? [" ", key(letter)] : null);
}

function callButtons(card) {
  const scope = card.scope?.value() ?? "once";
  const label = card.phase === "edited" ? t("Preview the edited call") : approveWord(scope, card.phase === "previewed");
  return [act(label, "btn--go", "a", card, "approve"), act(rejectWord(scope), "btn--no", "r", card, "reject")];
}

function noButtons(card) {
  return [h("p", { class: "hint" }, whoApproves(card.rights)), act(t("Reject"), "btn--no", "r", card, "reject")];
}

function unknownButtons(card) {
  return [
    act(t("It is done, go on"), "", null, card, "approve", { answer: "done" }),
    act(t("Run it again"), "", null, card, "approve", { answer: "retry" }),
    act(t("Give up this call"), "btn--no", "r", card, "reject"),
  ];
}

function questionButtons(card) {
  return [act(t("Answer"), "btn--go", "a", card, "approve"), act(t("Let it decide"), "btn--quiet", "r", card, "reject")];
}

function limitButtons(card) {
  return [act(t("Go on"), "btn--go", "a", card, "approve"), act(t("Stop here"), "btn--no", "r", card, "reject")];
}
