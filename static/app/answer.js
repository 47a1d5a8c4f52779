// A message of the model: rendered by the server, shown while it grows, replaced by the stored truth at its end.
import { fragment, h, setHtml } from "./dom.js";
import { t } from "./text.js";

/** {node, update(block)} for a text block. Settled pieces are put in once and stay; only the tail is redrawn. */
export function answerView(block) {
  const node = h("div", { class: "md" });
  let shown = null; // chunks in the page, or null when they are not what stands there
  let tail = [];

  function update(next) {
    if (!next.open) return finish(next);
    if (shown === null || !startsWith(next.chunks, shown)) {
      node.replaceChildren();
      shown = [];
      tail = [];
    }
    for (const old of tail) old.remove();
    for (const chunk of next.chunks.slice(shown.length)) node.append(dressed(fragment(chunk)));
    shown = next.chunks;
    const end = next.tail ? fragment(next.tail) : plainTail(next);
    tail = [...end.childNodes];
    node.append(end);
    tail.push(cursorIn(node));
    return undefined;
  }

  function finish(next) {
    shown = null;
    tail = [];
    if (next.html === null) node.replaceChildren(h("pre", { class: "plain" }, next.text));
    else setHtml(node, next.html);
    dressed(node);
  }

  update(block);
  return { node, update };
}

function startsWith(chunks, shown) {
  return chunks.length >= shown.length && shown.every((chunk, index) => chunk === chunks[index]);
}

/** Without rendering (the plain stream) the text itself is shown. */
function plainTail(block) {
  const piece = document.createDocumentFragment();
  if (!block.chunks.length && block.text) piece.append(h("pre", { class: "plain" }, block.text));
  return piece;
}

/** The cursor stands behind the last words, not under the last paragraph. */
function cursorIn(node) {
  const cursor = h("span", { class: "cursor", "aria-hidden": "true" });
  let place = node;
  while (place.lastElementChild && /^(P|LI|UL|OL|BLOCKQUOTE|H[2-6])$/.test(place.lastElementChild.tagName)) place = place.lastElementChild;
  place.append(cursor);
  return cursor;
}

/** What the server's HTML says in English, in the reader's language. */
export function dressed(root) {
  for (const copy of root.querySelectorAll("[data-copy]")) copy.textContent = t("Copy");
  for (const code of root.querySelectorAll('pre[aria-label="Code"]')) code.setAttribute("aria-label", t("Code"));
  for (const table of root.querySelectorAll('[role="region"][aria-label="Table"]')) table.setAttribute("aria-label", t("Table"));
  return root;
}
