// The people of one workspace and whose its sessions are. The server decides who may; the page offers no more than that.
import { all, api, post } from "./api.js";
import { attention } from "./attention.js";
import { begin, confirmed, keys, openCards, toast } from "./chrome.js";
import { button, cell, h, replace } from "./dom.js";
import { sessionList } from "./sessions.js";
import { t } from "./text.js";

const boot = begin();
const $ = (id) => document.getElementById(id);
const attend = attention(boot.urls.static);
const workspace = $("main").dataset.workspace;
const owns = $("main").dataset.owner === "yes";
const people = `/api/workspaces/${workspace}/members`;
const roleWords = { owner: t("owner"), approver: t("approver"), member: t("member"), viewer: t("viewer") };

const list = sessionList(
  { groups: $("groups"), search: $("search"), count: $("inbox-count"), empty: $("no-sessions"), archive: $("archive") },
  { current: null, onRunning: () => {}, onWaiting: (count) => attend.waiting(count) },
);
keys({ press: () => false, cards: openCards });

async function load() {
  try {
    const [members, sessions] = await Promise.all([all(people), all(`/api/sessions?workspace_id=${workspace}`)]);
    replace($("people"), members.map(personRow));
    const workers = members.filter((member) => member.role !== "viewer");
    replace($("theirs"), sessions.map((session) => sessionRow(session, workers)));
    $("none").hidden = sessions.length > 0;
    $("table").hidden = sessions.length === 0;
  } catch (error) {
    failed(error);
  }
}

/** What was asked for, then everything as it is now. */
async function act(work) {
  try {
    await work();
  } catch (error) {
    failed(error);
  }
  await Promise.all([load(), list.load()]);
}

function failed(error) {
  toast(error.unsent ? t("The server did not answer. Nothing was changed.") : error.message, { kind: "fail", icon: "cross" });
}

// ── people ──────────────────────────────────────────────────────────────────────────────────────

function personRow(person) {
  const named = person.name === person.username ? person.name : `${person.name} (${person.username})`;
  const mine = owns && person.role !== "owner";
  const role = cell(t("Role"), mine ? roleChoice(person) : roleWords[person.role]);
  return h("tr", { role: "row" }, cell(t("Name"), named), role, h("td", { role: "cell" }, mine ? removal(person) : null));
}

function roleChoice(person) {
  const options = ["viewer", "member", "approver"].map((role) => h("option", { value: role, selected: role === person.role }, roleWords[role]));
  const choice = h("select", { class: "input", "aria-label": t("Role of {name}", { name: person.username }) }, options);
  choice.addEventListener("change", () => act(() => api("PUT", personPath(person.username), { role: choice.value })));
  return choice;
}

function removal(person) {
  return button(t("Remove"), { kind: "btn--quiet btn--small btn--no", "aria-label": t("Remove {name}", { name: person.username }), onclick: () => remove(person) });
}

async function remove(person) {
  const sure = await confirmed(t("Remove {name} from this workspace?", { name: person.username }), t("They see nothing of it any more, and their sessions in it become yours."), t("Remove"));
  if (sure) await act(() => api("DELETE", personPath(person.username)));
}

function personPath(username) {
  return `${people}/${encodeURIComponent(username)}`;
}

$("add")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const { username, role } = event.target.elements;
  act(async () => {
    await api("PUT", personPath(username.value.trim()), { role: role.value });
    event.target.reset();
  });
});

// ── sessions ────────────────────────────────────────────────────────────────────────────────────

function sessionRow(session, workers) {
  const title = session.title || t("Untitled");
  const may = owns || session.owner === boot.user.username;
  const others = workers.filter((person) => person.username !== session.owner);
  const heir = cell(t("Hand over to"), may && others.length ? heirChoice(session, title, others) : "–");
  return h("tr", { role: "row" }, cell(t("Session"), h("a", { href: `/c/${session.id}` }, title)), cell(t("Belongs to"), session.owner), heir);
}

function heirChoice(session, title, others) {
  const options = [h("option", { value: "" }, t("Choose somebody")), ...others.map((person) => h("option", { value: person.username }, person.name))];
  const choice = h("select", { class: "input", "aria-label": t("Hand over {title}", { title }) }, options);
  choice.addEventListener("change", async () => {
    const name = choice.value;
    const sure = name && (await confirmed(t("Hand “{title}” over to {name}?", { title, name }), t("It is theirs from then on. The audit keeps who and when."), t("Hand over")));
    if (sure) await act(() => post(`/api/sessions/${session.id}/handover`, { username: name }));
    else choice.value = "";
  });
  return choice;
}

load();
