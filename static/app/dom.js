// Elements without strings of HTML: text is always text. The one door for the server's sanitised HTML is setHtml().

const SVG = "http://www.w3.org/2000/svg";
let icons = "";

/** Where the symbols are; said once, by the page. */
export function iconsAt(url) {
  icons = url;
}

/** h("p", {class: "x", onclick: f, hidden: true}, "text", node, [more]) */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

export function icon(name, more = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", more ? `i ${more}` : "i");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${icons}#i-${name}`);
  svg.append(use);
  return svg;
}

const FLOWING = new Set(["flag", "chev", "undo", "panel"]);

export function glyph(name) {
  return icon(name, FLOWING.has(name) ? `i--flow${name === "chev" ? " i--chev" : ""}` : "");
}

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** Of a table whose rows are stacked on a narrow page: each value says what it is. */
export function cell(label, value) {
  return h("td", { role: "cell", "data-label": label }, value);
}

export function button(label, { icon: symbol, kind = "", onclick, ...props } = {}) {
  return h("button", { type: "button", class: `btn ${kind}`.trim(), onclick, ...props }, symbol && glyph(symbol), label);
}

export function iconButton(symbol, label, { kind = "btn--quiet", ...props } = {}) {
  return button("", { icon: symbol, kind: `btn--icon ${kind}`, "aria-label": label, title: label, ...props });
}

/** Sanitised by the server (docs/pages.md), and by nobody else: the only place where HTML is parsed. */
export function setHtml(node, html) {
  node.innerHTML = html;
}

export function fragment(html) {
  const holder = document.createElement("template");
  setHtml(holder, html);
  return holder.content;
}

const views = new WeakMap();

/** Make `parent`'s children those of `items`, keeping what stays and moving nothing that is in place.
 *  `make(item)` gives {node, update(item)?}; update is called only when the item is another object. */
export function reconcile(parent, items, key, make) {
  const before = views.get(parent) ?? new Map();
  const after = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    let view = before.get(id);
    if (!view) {
      view = make(item);
    } else if (view.item !== item) {
      view.update?.(item);
    }
    view.item = item;
    after.set(id, view);
    if (view.node === place) place = place.nextSibling;
    else parent.insertBefore(view.node, place);
  }
  for (const [id, view] of before) {
    if (after.has(id)) continue;
    view.end?.();
    view.node.remove();
  }
  views.set(parent, after);
  return after;
}

/** Set the text only when it is another: a live region must not speak twice, a selection must stay. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
}
