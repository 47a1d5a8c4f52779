// One file of a workspace, opened: text is shown, and edited by whoever may write; anything else is offered for download.
// What is saved replaces exactly the content that was opened, or nothing.
import { bytesOf, put } from "./api.js";
import { confirmed, copied, toast } from "./chrome.js";
import { button, glyph, h, replace } from "./dom.js";
import { size, t, visible } from "./text.js";
import { contentUrl, sentence, unread } from "./uploads.js";

const MOST_SHOWN = 1024 * 1024;

/** `ctx`: {workspace, canWrite, onSaved(path), onClosed()}. */
export function fileEditor(panel, ctx) {
  let open = null; // {path, tag, text, box}

  async function show(path, bytes) {
    open = { path, tag: null, text: "", box: null };
    const mine = open;
    if (bytes > MOST_SHOWN) return draw(path, bytes, onlyDownload(t("It is too large to be shown here. Download it to open it.")));
    try {
      const found = await bytesOf(contentUrl(ctx.workspace, path));
      if (open !== mine) return; // another one was opened meanwhile
      const text = textOf(found.bytes);
      Object.assign(mine, { tag: found.tag, text: text ?? "" });
      draw(path, found.bytes.byteLength, text === null ? onlyDownload(t("This kind of file is not shown here. Download it to open it.")) : editing(text));
    } catch (error) {
      if (open === mine) draw(path, bytes, refusal(unread(error)));
    }
  }

  /** An empty file that is not there yet. */
  function begin(folder) {
    const name = h("input", { id: "new-name", class: "input", autocomplete: "off", spellcheck: "false", required: true, value: folder === "." ? "" : `${folder}/` });
    open = { path: "", tag: null, text: "", box: null, name };
    draw(t("New text file"), null, [h("div", { class: "field" }, h("label", { for: "new-name" }, t("Name, with its folders")), name), ...editing("")]);
    name.focus();
  }

  function draw(title, bytes, content) {
    const path = open.path;
    const download = path && h("a", { class: "btn btn--small", href: contentUrl(ctx.workspace, path), download: "" }, glyph("down"), t("Download"));
    const close = button(t("Close"), { icon: "cross", kind: "btn--small btn--quiet", onclick: leave });
    const about = bytes === null ? null : h("p", { class: "num" }, size(bytes));
    replace(panel, h("header", {}, h("div", { class: "btn-row" }, h("h2", { id: "h-file", tabindex: "-1" }, h("bdi", {}, visible(title))), download, close), about), h("div", { class: "panel__b" }, content));
    panel.hidden = false;
    if (path) panel.querySelector("h2").focus();
  }

  function editing(text) {
    open.box = h("textarea", { class: "input mono file__text", "aria-label": t("Content"), rows: 16, spellcheck: "false", readonly: !ctx.canWrite });
    open.box.value = text;
    open.text = open.box.value; // with the line ends of a text box
    if (!ctx.canWrite) return [open.box];
    const save = button(t("Save"), { kind: "btn--go", onclick: () => store(save) });
    const words = h("p", { class: "hint", role: "status", id: "file-said" });
    return [open.box, words, h("div", { class: "btn-row" }, save)];
  }

  async function store(save) {
    const mine = open;
    const path = mine.name ? mine.name.value.trim() : mine.path;
    const typed = mine.box.value;
    save.disabled = true;
    try {
      const more = mine.tag ? { overwrite: mine.tag } : {};
      const done = await put(contentUrl(ctx.workspace, path, more), withEnds(typed, mine.crlf));
      ctx.onSaved(done.path);
      toast(t("Saved."), { kind: "ok" });
      if (open !== mine) return;
      if (mine.name) await show(done.path, done.size);
      else Object.assign(mine, { tag: done.sha256, text: typed });
      say("");
    } catch (error) {
      if (open === mine) failed(error);
    } finally {
      save.disabled = false;
    }
  }

  function failed(error) {
    if (error.code !== "changed") return say(error.code === "exists" ? t("There is a file with this name already.") : sentence(error));
    const anew = button(t("Open it as it is now"), { kind: "btn--small", onclick: () => show(open.path, 0) });
    const copy = button(t("Copy my text"), { icon: "copy", kind: "btn--small", onclick: async () => toast((await copied(open.box.value)) ? t("Copied.") : t("This browser does not let the page copy.")) });
    return say(t("Somebody changed the file since you opened it. Nothing was saved."), copy, anew);
  }

  function say(text, ...buttons) {
    const words = panel.querySelector("#file-said");
    if (words) replace(words, text, buttons.length ? h("span", { class: "btn-row" }, buttons) : null);
  }

  const dirty = () => Boolean(open?.box) && open.box.value !== open.text;

  /** Whether what was typed may go. */
  async function may() {
    return !dirty() || confirmed(t("Give up what you typed?"), t("It was not saved."), t("Give it up"));
  }

  async function leave() {
    if (!(await may())) return;
    hide();
    ctx.onClosed();
  }

  function hide() {
    open = null;
    panel.hidden = true;
    panel.replaceChildren();
  }

  function textOf(bytes) {
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return null; // no UTF-8
    }
    const ends = text.match(/\r\n|\r|\n/g) ?? [];
    open.crlf = ends.length > 0 && ends.every((end) => end === "\r\n");
    // A text box has one kind of line end: what mixes them would not come back as it was.
    return text.includes("\0") || (text.includes("\r") && !open.crlf) ? null : text;
  }

  addEventListener("beforeunload", (event) => dirty() && event.preventDefault());
  return { show, begin, hide, may };
}

function withEnds(text, crlf) {
  return crlf ? text.replaceAll("\n", "\r\n") : text;
}

function onlyDownload(text) {
  return [h("p", { class: "hint" }, text)];
}

function refusal(text) {
  return [h("p", { class: "hint hint--bad", role: "alert" }, text)];
}
