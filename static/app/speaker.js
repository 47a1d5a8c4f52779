// What is said to who cannot see it: once when a turn starts, once when it ends, once per decision that waits.
import { announce } from "./chrome.js";
import { plainGoal } from "./goal.js";
import { pendingIn } from "./model.js";
import { decisionTitle, plain } from "./sentences.js";
import { clock, cut, sentences, t } from "./text.js";
import { endingWords } from "./turn.js";

/** `ready()` false: history is being read, which is not news. */
export function speaker({ ready, onWaiting }) {
  const states = new Map();
  const asked = new Set();

  return (state) => {
    const news = ready();
    for (const id of state.order) told(state.tasks[id], news);
    for (const approval of pendingIn(state)) {
      if (asked.has(approval.id)) continue;
      asked.add(approval.id);
      const text = plain(decisionTitle(approval));
      if (news) announce(waitingText(approval, text));
      onWaiting(approval.id, text);
    }
  };

  function told(task, news) {
    const before = states.get(task.id);
    const now = task.ended ? "ended" : task.status === "queued" ? "queued" : "going";
    if (before === now) return;
    states.set(task.id, now);
    if (!news) return;
    if (now === "ended") announce(endingWords(task));
    else if (now === "going") announce(t("Started: {goal}", { goal: cut(plainGoal(task.goal), 120) }));
  }
}

function waitingText(approval, title) {
  const risk = { low: t("Low risk."), medium: t("Medium risk."), high: t("High risk.") }[approval.risk] ?? "";
  const left = approval.expires_at ? t("{time} left.", { time: clock((Date.parse(approval.expires_at) - Date.now()) / 1000) }) : "";
  return sentences(t("Waits for you: {title}.", { title }), risk, left);
}
