// One decision: the evidence first, then the buttons. A decision counts once; whatever the answer, the card says
// what happened and what did not.
import { get, post } from "./api.js";
import { bodyOf, footOf, headOf, refresh } from "./approval-parts.js";
import { h, replace } from "./dom.js";
import { editForm } from "./edit.js";
import { answerForm } from "./question.js";
import { scopeChoice } from "./scope.js";
import { clock, time, t } from "./text.js";

const TOO_EARLY_MS = 400; // a key that was meant for something else

/** {node, update(approval), end()}. What the reader may do is in an approval of the API; one of the log is asked about
 *  where `canDecide` says that it may be theirs to answer. `ctx`: {canDecide, announce, onDecided(approval, node), level}. */
export function approvalCard(first, ctx) {
  const node = h("section", { class: "appr", id: `approval-${first.id}`, tabindex: "-1", "aria-labelledby": `appr-t-${first.id}` });
  const card = { node, ctx, approval: first, phase: "asked", born: performance.now(), edit: null, edited: null, shown: null, spoken: new Set() };
  card.comment = h("input", { id: `appr-c-${first.id}`, class: "appr__comment", autocomplete: "off", maxlength: "10000", placeholder: t("For example: keep last year’s figures as a footnote") });
  card.rights = rightsIn(first);
  card.scope = reachFor(card);
  card.decide = (decision, more) => decide(card, decision, more);
  card.preview = () => preview(card);
  card.snooze = () => snooze(card);
  card.question = first.kind === "question" ? answerForm(first.id, first.arguments?.options ?? []) : null;
  if (first.kind === "call" && first.arguments) {
    card.edit = editForm(first.arguments, { onEdit: (dirty) => edited(card, dirty), onPreview: card.preview });
  }
  if (!card.rights && ctx.canDecide && first.status === "pending") learn(card);
  draw(card);
  const ticking = setInterval(() => tick(card), 1000);
  return {
    node,
    update: (approval) => {
      card.approval = approval;
      card.rights = rightsIn(approval) ?? card.rights;
      draw(card);
    },
    end: () => clearInterval(ticking),
    press: (key) => press(card, key),
  };
}

/** {can_decide, can_approve, allowed_scopes, demands} as the server judges it; null: it has not said. */
function rightsIn({ can_decide, can_approve, allowed_scopes, demands }) {
  return can_approve === undefined ? null : { can_decide, can_approve, allowed_scopes, demands };
}

function reachFor(card) {
  const { approval, rights } = card;
  return scopeChoice({ ...approval, scopes: rights?.allowed_scopes ?? approval.scopes }, () => refresh(card), approval.scopes);
}

/** Until it is known what the reader may do, nothing can be pressed. */
async function learn(card) {
  card.learning = true;
  try {
    card.rights = rightsIn(await get(`/api/approvals/${card.approval.id}`));
    card.scope = reachFor(card);
  } catch {
    // offline, perhaps: the server judges the answer anyway
  }
  card.learning = false;
  draw(card);
}

function draw(card) {
  const { node, approval, phase } = card;
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const open = approval.status === "pending" && phase !== "over";
  node.classList.toggle("appr--done", !open);
  node.classList.toggle("appr--fail", open && phase === "unsent");
  node.toggleAttribute("data-open", open);
  node.setAttribute("role", open ? "region" : "group"); // a landmark while somebody is needed
  replace(node, headOf(card, open), bodyOf(card, open), open ? footOf(card) : null);
  if (focused && node.contains(focused)) focused.focus({ preventScroll: true });
  tick(card);
}

/** After an edit nobody approves what was not shown: the primary button previews first. */
function edited(card, dirty) {
  const stage = dirty ? "edited" : "asked";
  if (card.phase === stage) return;
  card.phase = stage;
  card.edited = null;
  card.shown = null;
  card.scope?.show(card.approval.standing);
  refresh(card);
}

async function preview(card) {
  const read = card.edit.read();
  if (read.problem) return card.edit.invalid(read.problem);
  return locked(card, async () => {
    const shown = await post(`/api/approvals/${card.approval.id}/preview`, { edited_arguments: read.value });
    card.edited = read.value;
    card.shown = shown;
    card.scope?.show(shown.standing);
    card.phase = "previewed";
    card.ctx.announce(t("This is what the edited call would change."));
  }).then(() => card.phase === "previewed" && card.evidence.scrollIntoView({ block: "start", behavior: "instant" }));
}

async function decide(card, decision, { answer } = {}) {
  if (card.busy || card.learning || card.approval.status !== "pending") return undefined;
  if (decision === "approve" && card.phase === "edited") return preview(card);
  const said = card.question?.read() ?? "";
  if (decision === "approve" && card.question && !said) return card.question.missing();
  const body = { decision };
  const comment = card.comment.value.trim();
  if (comment) body.comment = comment;
  if (answer) body.answer = answer;
  if (said) body[decision === "approve" ? "answer" : "comment"] = said;
  if (card.scope && card.scope.value() !== "once") body.scope = card.scope.value();
  if (decision === "approve" && card.phase === "previewed") {
    body.edited_arguments = card.edited;
    body.target_digest = card.shown.target_digest; // approved is what was shown
  }
  return locked(card, async () => {
    const { approval } = await post(`/api/approvals/${card.approval.id}/resolve`, body);
    card.approval = { ...card.approval, ...approval, id: card.approval.id };
    if (approval.status === "pending") {
      card.phase = "asked";
      return void card.ctx.announce(t("Your yes is noted. One more person must agree."));
    }
    card.phase = "over";
    card.mine = true;
    card.ctx.onDecided(card.approval, card.node);
  });
}

/** It waits as long again, from now on. */
function snooze(card) {
  return locked(card, async () => {
    const { approval } = await post(`/api/approvals/${card.approval.id}/snooze`, {});
    card.approval = { ...card.approval, expires_at: approval.expires_at };
    card.ctx.announce(t("It waits until {time} now.", { time: time(approval.expires_at) }));
  });
}

/** Controls are locked while a reply is under way; a refusal says what it means for this decision. */
async function locked(card, act) {
  card.busy = true;
  draw(card);
  try {
    await act();
  } catch (error) {
    refused(card, error);
  } finally {
    card.busy = false;
    draw(card);
  }
}

function refused(card, error) {
  card.refusal = error;
  if (error.unsent || error.status >= 500) {
    card.phase = "unsent";
  } else if (error.code === "invalid_arguments" || error.code === "refused" || (error.status === 400 && card.edit)) {
    card.edit?.invalid(error.message);
    card.phase = "edited";
  } else if (error.code === "stale") {
    card.phase = "over";
    card.stale = error.details?.approval_id ?? error.details?.replaced_by ?? null;
    card.approval = { ...card.approval, status: "stale" };
  } else {
    conflict(card, error);
  }
  card.ctx.alert(error.unsent || error.status >= 500 ? t("Your decision did not reach the server. Nothing was decided.") : error.message);
}

function conflict(card, error) {
  const won = error.details ?? {};
  if (error.code === "expired") card.approval = { ...card.approval, status: "expired" };
  else if (error.code === "already_resolved") card.approval = { ...card.approval, ...pick(won), lost: true };
  else return void (card.phase = "refused");
  card.phase = "over";
}

function pick({ status, resolved_by, resolved_at, comment }) {
  return { status: status ?? "cancelled", resolved_by: resolved_by ?? null, resolved_at: resolved_at ?? null, comment: comment ?? "" };
}

/** Once per second: the time left, in words at five minutes and at one. */
function tick(card) {
  const { approval, node } = card;
  const left = node.querySelector("[data-left]");
  if (!left || !approval.expires_at) return;
  const rest = (Date.parse(approval.expires_at) - Date.now()) / 1000;
  left.textContent = rest > 0 ? t("{time} left", { time: clock(rest) }) : t("Time is up");
  const gauge = node.querySelector("[data-gauge]");
  if (gauge) gauge.value = Math.max(0, rest);
  for (const minutes of [5, 1]) {
    if (rest > minutes * 60 || rest < minutes * 60 - 30 || card.spoken.has(minutes)) continue;
    card.spoken.add(minutes);
    card.ctx.announce(t("{minutes} min left to decide.", { minutes }));
  }
}

/** a, e and r, while focus is in the card and not in a field. Escape never decides. */
function press(card, key) {
  if (card.busy || card.approval.status !== "pending" || performance.now() - card.born < TOO_EARLY_MS) return false;
  const target = card.node.querySelector(`[aria-keyshortcuts="${key}"]`);
  if (!target || target.disabled) return false;
  target.click();
  return true;
}
