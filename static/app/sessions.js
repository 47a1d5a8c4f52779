// The list of sessions: what needs a person first. It asks again when what runs has changed, and only while visible.
import { get } from "./api.js";
import { glyph, h, reconcile, replace, say } from "./dom.js";
import { day, midnight, n, number, t } from "./text.js";

const POLL_MS = 2500;
const SEARCH_MS = 250;
const MARKS = {
  needs_you: ["flag", "wait"], running: ["run", "run"], queued: ["queued", ""], done: ["check", "ok"],
  failed: ["cross", "fail"], stopped: ["stop", ""], limit: ["gauge", ""], empty: ["queued", ""],
};

/** `parts`: {groups, search, count, empty, archive}; `onRunning(items)` with every answer about what runs. */
export function sessionList(parts, { current, onRunning, onWaiting }) {
  let before = "";
  let query = "";
  let loading = null;
  let again = false;
  let archived = false;

  async function load() {
    if (loading) {
      again = true;
      return;
    }
    loading = read();
    await loading;
    loading = null;
    if (again) {
      again = false;
      await load();
    }
  }

  async function read() {
    const [asked, stored] = [query, archived];
    try {
      const found = await get(`/api/sessions?limit=100&archived=${stored}${asked ? `&q=${encodeURIComponent(asked)}` : ""}`);
      if (asked === query && stored === archived) draw(found.items, asked);
    } catch {
      // the line's banner tells about a lost server; the list keeps what it has
    }
  }

  function draw(items, asked) {
    const groups = asked || archived ? [{ key: "found", title: n(items.length, "{n} found", "{n} found"), items }] : grouped(items);
    reconcile(parts.groups, groups.filter((group) => group.items.length), (group) => group.key, (group) => groupView(group, current));
    parts.empty.hidden = items.length > 0 || Boolean(asked) || archived;
    if (!asked && !archived) waiting(items.reduce((total, each) => total + (each.waiting ?? 0), 0));
  }

  function waiting(count) {
    parts.count.hidden = count === 0;
    replace(parts.count, h("span", { class: "sr" }, t("waiting for you:"), " "), number(count));
    onWaiting(count);
  }

  async function poll() {
    if (document.hidden) return;
    try {
      const { items } = await get("/api/sessions/running");
      const now = items.map((item) => `${item.session_id} ${item.status}`).sort().join();
      if (now !== before) await load();
      before = now;
      onRunning(items);
    } catch {
      // as above
    }
  }

  let typing = 0;
  parts.search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      query = parts.search.value.trim();
      load();
    }, SEARCH_MS);
  });
  parts.archive.addEventListener("click", () => {
    archived = !archived;
    parts.archive.setAttribute("aria-pressed", String(archived));
    load();
  });
  setInterval(poll, POLL_MS);
  document.addEventListener("visibilitychange", () => document.hidden || poll());
  load();
  return { load };
}

export function grouped(items, now = new Date()) {
  const today = midnight(now);
  const of = (item) => {
    if (item.state === "needs_you") return "you";
    if (item.state === "running" || item.state === "queued") return "running";
    const age = (today - midnight(new Date(item.updated_at))) / 86_400_000;
    return age < 1 ? "today" : age < 7 ? "week" : "older";
  };
  const titles = { you: t("Needs you"), running: t("Running"), today: t("Today"), week: t("This week"), older: t("Earlier") };
  return Object.entries(titles).map(([key, title]) => ({ key, title, items: items.filter((item) => of(item) === key) }));
}

function groupView(first, current) {
  const title = h("h2", { id: `group-${first.key}` });
  const list = h("ul", { "aria-labelledby": title.id });
  const node = h("div", { class: "group" }, title, list);
  function update(group) {
    say(title, group.title);
    reconcile(list, group.items, (item) => item.id, (item) => rowView(item, current));
  }
  update(first);
  return { node, update };
}

function rowView(first, current) {
  const link = h("a", { class: "sess", href: `/c/${first.id}`, "aria-current": first.id === current ? "page" : null });
  const node = h("li", {}, link);
  function update(item) {
    const [symbol, kind] = MARKS[item.state] ?? MARKS.empty;
    const where = [item.workspace_name, { cron: t("schedule"), webhook: t("webhook") }[item.task?.trigger]].filter(Boolean).join(" · ");
    link.classList.toggle("sess--told", item.task?.trigger === "webhook");
    const when = item.state === "running" ? wordOf(item.state) : day(item.updated_at);
    replace(
      link,
      h("span", { class: kind ? `mark mark--${kind}` : "mark" }, glyph(symbol), h("span", { class: "sr" }, `${wordOf(item.state)}:`)),
      h("span", { class: "sess__t", title: item.title }, item.title || t("Untitled")),
      h("span", { class: "sess__m" }, h("span", {}, where), h("span", {}, when)),
    );
  }
  update(first);
  return { node, update };
}

function wordOf(state) {
  return { needs_you: t("Waits for you"), running: t("Running"), queued: t("Queued"), done: t("Done"), failed: t("Failed"), stopped: t("Stopped"), limit: t("Limit reached") }[state] ?? t("Empty");
}

