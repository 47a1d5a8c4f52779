// The chat page: `/` (a new task) and `/c/{id}` (a conversation). Puts the parts together and owns nothing else.
import { api, post } from "./api.js";
import { attachments } from "./attachments.js";
import { attention } from "./attention.js";
import { lineBanner } from "./banner.js";
import { alarm, announce, begin, confirmed, copied, keys, menu, openCards, showCard, toast } from "./chrome.js";
import { composer } from "./composer.js";
import { h, replace } from "./dom.js";
import { handOver } from "./handover.js";
import { inspector } from "./inspector.js";
import { currentTask, taskState } from "./model.js";
import { policyPanel } from "./policy.js";
import { openTasks } from "./reducer.js";
import { sessionList } from "./sessions.js";
import { decisionSheet } from "./sheet.js";
import { speaker } from "./speaker.js";
import { Store } from "./store.js";
import { Line } from "./stream.js";
import { t } from "./text.js";
import { drawPill, threadView } from "./thread.js";
import { taskWord } from "./turn.js";
import { UNDONE } from "./undo.js";

const boot = begin();
const session = boot.session;
const $ = (id) => document.getElementById(id);
const attend = attention(boot.urls.static);

const place = () => session?.workspace.id || $("workspace")?.value || boot.workspaces[0]?.id;
const attached = $("attach") && attachments({ list: $("attached"), button: $("attach"), pick: $("attach-pick"), zone: $("compose") }, place);
$("workspace")?.addEventListener("change", () => attached?.moved());
const compose = composer(
  { form: $("compose"), text: $("say"), when: $("when"), stop: $("stop"), send: $("send"), problem: $("problem"), queue: $("queue") },
  { session: session?.id, workspace: place, attached, model: () => $("model")?.value, onSent: sent, announce },
);
const list = sessionList(
  { groups: $("groups"), search: $("search"), count: $("inbox-count"), empty: $("no-sessions"), archive: $("archive") },
  { current: session?.id, onRunning: (items) => heard(items), onWaiting: (count) => attend.waiting(count) },
);
const life = session ? conversation() : null;
if (!life) start();

/** Somebody else, another page or a schedule may begin a task in this session: then it is followed again. */
function heard(items) {
  if (life && items.some((item) => item.session_id === session.id)) life.line.wake();
}

function sent(created, steered) {
  if (!life) location.assign(`/c/${created.session_id}`);
  else life.sent(created, steered);
}

// ── a new task ──────────────────────────────────────────────────────────────────────────────────

function start() {
  for (const choice of document.querySelectorAll("[data-goal]")) choice.addEventListener("click", () => compose.fill(choice.dataset.goal));
  keys({ press: () => false, cards: openCards });
  $("say").focus();
}

// ── a conversation ──────────────────────────────────────────────────────────────────────────────

function conversation() {
  const store = new Store(session.id);
  let goTo = null; // the turn that was just sent
  let ready = false; // history has been read
  let told = ""; // what the list was told

  const line = new Line({
    session: session.id,
    state: () => store.state,
    onEvents: (events) => store.apply(events) && line.settle(),
    onLog: (events, end) => store.applyLog(events, end) && line.settle(),
    onLine: lineBanner($("line"), () => line.retry()),
  });
  const ctx = context(store);
  const thread = threadView({ thread: $("thread"), callout: $("callout"), jump: $("jump") }, ctx);
  const panel = inspector({ budget: $("budget"), timeline: $("timeline"), timelineCount: $("timeline-count"), files: $("files"), filesCount: $("files-count") });
  const may = policyPanel({ section: $("policy"), mode: $("policy-mode"), body: $("policy-body") }, { session, workspaces: boot.workspaces, failed });
  const speakUp = speaker({ ready: () => ready, onWaiting: (id, text) => attend.notify(id, text) });

  store.onDraw((state) => {
    thread.draw(state);
    compose.draw(state);
    panel.draw(state);
    if (ready) may.draw(state);
    const task = currentTask(state);
    if (task) drawPill($("state"), task, taskState(task), task.limits, taskWord(taskState(task)));
    tellList(state);
    speakUp(state);
    settlePlace(state);
  });

  /** The list shows at once what this page knows. */
  function tellList(state) {
    const now = state.order.map((id) => taskState(state.tasks[id])).join();
    if (ready && now !== told) list.load();
    told = now;
  }

  function settlePlace(state) {
    const turn = goTo && document.querySelector(`.turn[data-task="${goTo}"]`);
    if (turn) {
      thread.top(turn);
      goTo = null;
    }
    if (ready || state.position < session.last_position) return;
    ready = true;
    restorePlace(thread);
    speakUp(state);
    may.draw(state);
  }

  document.addEventListener(UNDONE, () => panel.undone());
  setInterval(() => {
    panel.force();
    if (openTasks(store.state).length && !document.hidden) panel.draw(store.state);
  }, 1000);
  titleParts();
  modelParts();
  keys({ press: (node, key) => cardOf(ctx, node)?.press(key) ?? false, cards: openCards, stop: () => compose.stop() });
  compose.draw(store.state);
  line.wake();
  if (session.last_position === 0) {
    ready = true;
    thread.draw(store.state);
    may.draw(store.state);
  }

  return {
    line,
    sent(created, steered) {
      if (!steered) goTo = created.id;
      line.wake();
      list.load();
    },
  };
}

function cardOf(ctx, node) {
  return [...ctx.cards.values()].find((card) => card.node === node);
}

function decidedWords({ kind, status }) {
  if (kind === "question") return status === "approved" ? t("Answered. It goes on.") : t("It goes on and decides by itself.");
  return status === "approved" ? t("Approved. It goes on.") : t("Rejected. Nothing was done.");
}

/** What the parts of a turn may do; see turn.js. */
function context(store) {
  const sheet = decisionSheet($("sheet"));
  const ctx = {
    owner: session.owner,
    username: boot.user.username,
    canWrite: session.can_write,
    rights: session,
    cards: new Map(),
    state: () => store.state,
    announce,
    alert: alarm,
    show(id) {
      const card = $(`approval-${id}`);
      if (card && sheet.fits()) sheet.open(card);
      else if (card) showCard(card);
    },
    onDecided(approval, node) {
      sheet.close();
      announce(decidedWords(approval));
      const next = openCards().find((card) => card !== node);
      if (next) showCard(next);
      else compose.focus();
    },
    async copy(text) {
      toast((await copied(text)) ? t("Copied.") : t("This browser does not let the page copy."));
    },
    resend: (goal) => compose.fill(goal),
    models: boot.models,
    exportOf: (task) => `/c/${session.id}/export.md?task=${task.id}`,
    retry: (task, pressed, model) => quietly(pressed, async () => sent(await post(`/api/tasks/${task.id}/retry`, model ? { model } : {}), false)),
    fork: (task) =>
      quietly(null, async () => {
        const made = await post(`/api/sessions/${session.id}/fork`, { task_id: task.id, sequence: task.sequence });
        location.assign(`/c/${made.id}`);
      }),
  };
  return ctx;
}

/** A press that may fail, with the words of the failure. */
async function quietly(pressed, act) {
  if (pressed) pressed.disabled = true;
  try {
    await act();
  } catch (error) {
    failed(error);
  } finally {
    if (pressed) pressed.disabled = false;
  }
}

function failed(error) {
  toast(error.unsent ? t("The server did not answer. Nothing was changed.") : error.message, { kind: "fail", icon: "cross" });
}

/** Reload keeps the place; a first visit begins at the decision that waits, else at the end. */
function restorePlace(thread) {
  const key = `place:${session.id}`;
  addEventListener("pagehide", () => sessionStorage.setItem(key, String(document.documentElement.scrollHeight - innerHeight - scrollY < 80 ? -1 : scrollY)));
  const asked = location.hash && document.querySelector(CSS.supports("selector(:is(a))") ? `[id="${CSS.escape(location.hash.slice(1))}"]` : location.hash);
  const kept = sessionStorage.getItem(key);
  if (asked) showCard(asked);
  else if (kept === null) thread.begin(openCards()[0]);
  else if (kept >= 0) scrollTo({ top: Number(kept), behavior: "instant" });
  else thread.begin();
}

// ── title and menu ──────────────────────────────────────────────────────────────────────────────

function titleParts() {
  const title = $("title");
  attend.name(session.title);
  menu($("menu-button"), $("menu"));
  if (!session.can_write) return;
  $("menu-rename").addEventListener("click", () => rename(title));
  $("menu-archive").addEventListener("click", () =>
    quietly(null, async () => {
      await api("PATCH", `/api/sessions/${session.id}`, { archived: !session.archived });
      location.assign(session.archived ? location.pathname : boot.urls.home);
    }),
  );
  $("menu-delete").addEventListener("click", () => remove(title.textContent));
  $("menu-handover")?.addEventListener("click", () =>
    quietly(null, async () => {
      if (await handOver(session, title.textContent)) location.reload(); // whose it is stands in many places
    }),
  );
}

/** The session's model, from its next run on. What was chosen stands until the server refuses it. */
function modelParts() {
  const select = $("model");
  let before = select?.value;
  select?.addEventListener("change", () =>
    quietly(select, async () => {
      const wanted = select.value;
      select.value = before;
      const changed = await api("PATCH", `/api/sessions/${session.id}`, { model_profile_id: wanted || null });
      before = select.value = changed.model_profile_id ?? "";
      if ($("demo-note")) $("demo-note").hidden = before !== "" || !boot.model.default_demo;
      $("model-name").textContent = boot.models.find(({ id }) => id === before)?.name ?? boot.model.default;
      announce(t("Model: {name}", { name: $("model-name").textContent }));
    }),
  );
}

async function remove(name) {
  const sure = await confirmed(t("Delete “{title}” for good?", { title: name }), t("It disappears for everybody. Its log is kept for the audit; files in the workspace stay."), t("Delete"));
  if (!sure) return;
  await quietly(null, async () => {
    await api("DELETE", `/api/sessions/${session.id}`);
    location.assign(boot.urls.home);
  });
}

function rename(title) {
  const before = title.textContent;
  const input = h("input", { class: "input", "aria-label": t("Title"), maxlength: "200" });
  input.value = before;
  replace(title, input);
  input.focus();
  input.select();
  let over = false;
  const end = async (keep) => {
    if (over) return;
    over = true;
    const wanted = input.value.trim();
    title.textContent = before;
    if (!keep || !wanted || wanted === before) return;
    await quietly(null, async () => {
      const changed = await api("PATCH", `/api/sessions/${session.id}`, { title: wanted });
      title.textContent = changed.title;
      attend.name(changed.title);
      list.load();
    });
  };
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") end(true);
    if (event.key === "Escape") end(false);
  });
  input.addEventListener("blur", () => end(true));
}
