// Files on their way to a workspace: nothing is replaced unless somebody says so about the file that is there.
import { put } from "./api.js";
import { button, glyph, h } from "./dom.js";
import { size, t, visible } from "./text.js";

export const MAX_BYTES = 16 * 1024 * 1024;
const MOST_NAMES = 100;

export function contentUrl(workspace, path, more = {}) {
  return `/api/workspaces/${workspace}/files/content?${new URLSearchParams({ path, ...more })}`;
}

export function inFolder(folder, name) {
  return folder === "." ? name : `${folder}/${name}`;
}

/** To a name that nothing has yet: “quotes.csv”, else “quotes-2.csv” … → {path, size, sha256}. */
export async function uploadNew(workspace, folder, file) {
  tooLarge(file);
  for (let number = 1; ; number += 1) {
    try {
      return await put(contentUrl(workspace, inFolder(folder, numbered(file.name, number))), file);
    } catch (error) {
      if (error.code !== "exists" || number === MOST_NAMES) throw error;
    }
  }
}

function numbered(name, number) {
  const at = name.lastIndexOf(".");
  const [stem, end] = at > 0 ? [name.slice(0, at), name.slice(at)] : [name, ""];
  return number === 1 ? name : `${stem}-${number}${end}`;
}

function tooLarge(file) {
  if (file.size > MAX_BYTES) throw new Error(t("It has {size}; at most {most} can be uploaded.", { size: size(file.size), most: size(MAX_BYTES) }));
}

/** Why a change failed. */
export function sentence(error) {
  return error.unsent ? t("The server did not answer. Whether anything was changed is not known.") : error.message;
}

/** Why something could not be read. */
export function unread(error) {
  return error.unsent ? t("The server did not answer.") : error.message;
}

/** The list of uploads of a page; `ctx`: {workspace, onDone()}. A row stays until it is closed or has gone well. */
export function uploadList(list, ctx) {
  async function add(folder, files) {
    for (const file of files) await one(folder, file); // one after the other: their order is what one sees
  }

  async function one(folder, file, row = rowOf(file.name)) {
    const url = (more) => contentUrl(ctx.workspace, inFolder(folder, file.name), more);
    try {
      tooLarge(file);
      await put(url(), file);
      row.done();
    } catch (error) {
      if (error.code === "exists") row.ask(() => again(row, url({ overwrite: error.details.sha256 }), file), () => both(row, folder, file));
      else row.failed(sentence(error));
    }
    ctx.onDone();
  }

  async function again(row, url, file) {
    await told(row, () => put(url, file));
  }

  async function both(row, folder, file) {
    await told(row, () => uploadNew(ctx.workspace, folder, file));
  }

  async function told(row, work) {
    row.running();
    try {
      await work();
      row.done();
    } catch (error) {
      row.failed(sentence(error));
    }
    ctx.onDone();
  }

  function rowOf(name) {
    const mark = h("span", { class: "mark" });
    const words = h("span", {});
    const tools = h("span", { class: "btn-row" });
    const row = h("li", {}, mark, h("p", {}, h("bdi", { class: "strong" }, visible(name)), " ", words), tools);
    list.append(row);
    const show = (symbol, kind, text, ...buttons) => {
      mark.className = `mark ${kind}`;
      mark.replaceChildren(glyph(symbol));
      words.textContent = text;
      tools.replaceChildren(...buttons);
    };
    const close = (label) => button(label, { kind: "btn--small btn--quiet", onclick: () => row.remove() });
    const view = {
      running: () => show("run", "mark--run", t("Uploading…")),
      done: () => {
        show("check", "mark--ok", t("Uploaded."));
        setTimeout(() => row.remove(), 4000);
      },
      failed: (text) => show("cross", "mark--fail", text, close(t("Close"))),
      ask: (replaceIt, keepBoth) =>
        show("ask", "", t("There is a file with this name already."), button(t("Replace it"), { kind: "btn--small", onclick: replaceIt }), button(t("Keep both"), { kind: "btn--small", onclick: keepBoth }), close(t("Do not upload"))),
    };
    view.running();
    return view;
  }

  return { add };
}

/** Files that are dropped on a part of the page; while they hover it is marked. */
export function dropZone(node, onFiles) {
  let depth = 0; // entering a child comes before leaving its parent
  const mark = (by) => {
    depth = by === 0 ? 0 : depth + by;
    node.toggleAttribute("data-over", depth > 0);
  };
  const brings = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  node.addEventListener("dragenter", (event) => brings(event) && mark(1));
  node.addEventListener("dragleave", (event) => brings(event) && mark(-1));
  node.addEventListener("dragover", (event) => brings(event) && event.preventDefault());
  node.addEventListener("drop", (event) => {
    if (!brings(event)) return;
    event.preventDefault();
    mark(0);
    onFiles([...event.dataTransfer.files]);
  });
}
