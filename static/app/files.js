// The files of one workspace: its folders in pages, one file opened, uploads by picker and by dropping.
// Where one is stands in the address (?path=, ?file=), so that back, forward and reload work.
import { api, get, tagOf } from "./api.js";
import { attention } from "./attention.js";
import { announce, begin, confirmed, keys, openCards, toast } from "./chrome.js";
import { glyph, h, iconButton, replace } from "./dom.js";
import { fileEditor } from "./file-editor.js";
import { fileIcon } from "./sentences.js";
import { sessionList } from "./sessions.js";
import { day, size, t, visible } from "./text.js";
import { contentUrl, dropZone, sentence, unread, uploadList } from "./uploads.js";

const boot = begin();
const $ = (id) => document.getElementById(id);
const attend = attention(boot.urls.static);
const workspace = $("main").dataset.workspace;
const canWrite = $("main").dataset.write === "yes";
let folder = ".";
let shown = []; // items of the folder
let cursor = null;
let asked = 0; // the newest question wins

sessionList(
  { groups: $("groups"), search: $("search"), count: $("inbox-count"), empty: $("no-sessions"), archive: $("archive") },
  { current: null, onRunning: () => {}, onWaiting: (count) => attend.waiting(count) },
);
keys({ press: () => false, cards: openCards });
const editor = fileEditor($("file"), { workspace, canWrite, onSaved: () => load(), onClosed: () => go({ path: folder }) });

// ── where one is ────────────────────────────────────────────────────────────────────────────────

function address({ path, file }) {
  const query = new URLSearchParams({ ...(path === "." ? {} : { path }), ...(file ? { file } : {}) });
  return `${location.pathname}${query.size ? `?${query}` : ""}`;
}

function go(place, bytes) {
  history.pushState(null, "", address(place));
  return arrive(bytes);
}

async function arrive(bytes = 0) {
  const query = new URLSearchParams(location.search);
  const file = query.get("file");
  folder = query.get("path") ?? ".";
  editor.hide();
  await load();
  if (file) await editor.show(file, bytes || (shown.find((item) => item.path === file)?.size ?? 0));
}

/** A link of this page: followed here, unless somebody wants it elsewhere or has typed something. */
function link(place, bytes, ...children) {
  const node = h("a", { href: address(place) }, ...children);
  node.addEventListener("click", async (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    if (await editor.may()) go(place, bytes);
  });
  return node;
}

addEventListener("popstate", () => arrive());

// ── the folder ──────────────────────────────────────────────────────────────────────────────────

async function load(more = false) {
  const mine = ++asked;
  const query = new URLSearchParams({ path: folder, ...(more && cursor ? { cursor } : {}) });
  try {
    const page = await get(`/api/workspaces/${workspace}/files?${query}`);
    if (mine !== asked) return;
    shown = more ? [...shown, ...page.items] : page.items;
    cursor = page.next;
    draw(page.complete);
  } catch (error) {
    if (mine === asked) refused(error);
  }
}

function draw(complete) {
  drawPath();
  replace($("rows"), shown.map(row));
  $("table").hidden = shown.length === 0;
  $("empty").hidden = shown.length > 0;
  $("empty").textContent = canWrite ? t("Nothing is in this folder. Drop files here, or choose them with Upload.") : t("Nothing is in this folder.");
  $("more").hidden = !cursor;
  $("too-many").hidden = complete;
}

function drawPath() {
  const names = folder === "." ? [] : folder.split("/");
  const crumbs = names.map((name, index) => {
    const path = names.slice(0, index + 1).join("/");
    return h("li", {}, index === names.length - 1 ? h("span", { "aria-current": "location" }, h("bdi", {}, visible(name))) : link({ path }, 0, h("bdi", {}, visible(name))));
  });
  const top = names.length ? link({ path: "." }, 0, t("All files")) : h("span", { "aria-current": "location" }, t("All files"));
  replace($("crumbs"), h("li", {}, top), crumbs);
}

function refused(error) {
  drawPath();
  shown = [];
  for (const id of ["table", "more", "too-many"]) $(id).hidden = true;
  $("empty").hidden = false;
  $("empty").textContent = error.status === 404 ? t("There is no such folder (any more).") : unread(error);
}

function row(item) {
  const name = h("bdi", {}, visible(item.name));
  const size_ = item.kind === "file" ? size(item.size) : "";
  const changed = item.modified_at ? h("time", { datetime: item.modified_at, title: new Date(item.modified_at).toLocaleString(boot.language) }, day(item.modified_at)) : "";
  return h("tr", {}, h("td", {}, h("span", { class: "file__n" }, glyph(symbol(item)), h("span", {}, named(item, name))), h("small", { class: "file__m" }, size_)), h("td", { class: "n" }, size_), h("td", { class: "n" }, changed), h("td", { class: "n" }, item.kind === "file" && item.path ? tools(item) : null));
}

function symbol({ kind, name }) {
  if (kind === "directory") return "folder";
  return kind === "link" ? "fork" : fileIcon(name);
}

/** A folder or file is a link; what leads elsewhere or is none of both only says so. */
function named(item, name) {
  if (!item.path) return [name, note(t("its name cannot be asked for"))];
  if (item.kind === "directory") return link({ path: item.path }, 0, name);
  if (item.kind === "file") return link({ path: folder, file: item.path }, item.size, name);
  return [name, note(item.kind === "link" ? t("link") : t("not a regular file"))];
}

function note(text) {
  return h("small", { class: "muted" }, ` (${text})`);
}

function tools(item) {
  const label = (text) => `${text} ${item.name}`;
  const download = h("a", { class: "btn btn--quiet btn--icon btn--small", href: contentUrl(workspace, item.path), download: "", "aria-label": label(t("Download")), title: t("Download") }, glyph("down"));
  const remove = canWrite && iconButton("cross", label(t("Delete")), { kind: "btn--quiet btn--small btn--no", title: t("Delete"), onclick: () => removal(item) });
  return h("span", { class: "btn-row file__do" }, download, remove || null);
}

/** What goes is what was there when the question was asked: nothing newer. */
async function removal(item) {
  try {
    const sha256 = await tagOf(contentUrl(workspace, item.path));
    if (!(await confirmed(t("Delete {name}?", { name: visible(item.name) }), t("It cannot be brought back. The audit keeps who deleted it, not what was in it."), t("Delete")))) return;
    await api("DELETE", contentUrl(workspace, item.path, { sha256 }));
    announce(t("Deleted."));
  } catch (error) {
    toast(sentence(error), { kind: "fail", icon: "cross" });
  }
  await load();
}

$("more").addEventListener("click", () => load(true));

// ── uploads ─────────────────────────────────────────────────────────────────────────────────────

if (canWrite) {
  const uploads = uploadList($("uploads"), { workspace, onDone: () => load() });
  const add = (files) => files.length && uploads.add(folder, files);
  $("pick").addEventListener("change", (event) => {
    add([...event.target.files]);
    event.target.value = ""; // the same file can be chosen again
  });
  $("upload").addEventListener("click", () => $("pick").click());
  $("new").addEventListener("click", async () => (await editor.may()) && editor.begin(folder));
  dropZone($("main"), add);
}

arrive();
