// A session becomes a colleague's: asked for in the conversation itself. The page of the workspace offers the same for all of them.
import { all, post } from "./api.js";
import { confirmed, toast } from "./chrome.js";
import { h } from "./dom.js";
import { t } from "./text.js";

/** Whether it was handed over; refusals are the caller's. */
export async function handOver(session, title) {
  const people = await all(`/api/workspaces/${session.workspace.id}/members`);
  const heirs = people.filter(({ role, username }) => role !== "viewer" && username !== session.owner);
  if (!heirs.length) {
    toast(t("Nobody else works in this workspace yet."), { icon: "user", action: h("a", { href: `/workspaces/${session.workspace.id}` }, t("Let somebody in")) });
    return false;
  }
  const choice = h("select", { id: "heir" }, heirs.map(({ username, name }) => h("option", { value: username }, name === username ? name : `${name} (${username})`)));
  const detail = [h("div", { class: "field" }, h("label", { for: "heir" }, t("To whom")), choice), h("p", { class: "small ink2" }, t("It is theirs from then on. The audit keeps who and when."))];
  if (!(await confirmed(t("Hand “{title}” over?", { title }), detail, t("Hand over")))) return false;
  await post(`/api/sessions/${session.id}/handover`, { username: choice.value });
  return true;
}
