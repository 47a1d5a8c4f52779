// Files that go with what is said next: uploaded at once, into uploads/ and under a name that nothing has yet, and named
// when the words are sent. A file that was taken off again stays in the workspace: only the words do not name it.
import { glyph, h, iconButton, replace } from "./dom.js";
import { size, t, visible } from "./text.js";
import { dropZone, sentence, uploadNew } from "./uploads.js";

const FOLDER = "uploads";

/** `parts`: {list, button, pick, zone}; `workspace()`: where they go. */
export function attachments(parts, workspace) {
  let chips = [];

  function add(files) {
    for (const file of files) {
      const chip = { file, path: null, node: h("li", {}) };
      chips.push(chip);
      parts.list.append(chip.node);
      start(chip);
    }
  }

  async function start(chip) {
    const place = workspace();
    chip.path = null;
    draw(chip, "run", "mark--run", t("Uploading…"));
    try {
      const done = await uploadNew(place, FOLDER, chip.file);
      if (place !== workspace()) return; // it is on its way to another one
      chip.path = done.path;
      draw(chip, "file", "", size(done.size));
    } catch (error) {
      if (place === workspace()) draw(chip, "cross", "mark--fail", sentence(error));
    }
  }

  function draw(chip, symbol, kind, text) {
    const name = visible(chip.file.name);
    chip.waits = kind === "mark--run";
    const remove = iconButton("cross", t("Do not attach {name}", { name }), { kind: "btn--quiet btn--small", onclick: () => take(chip) });
    replace(chip.node, h("span", { class: `mark ${kind}`.trim() }, glyph(symbol)), h("bdi", {}, name), h("small", { class: "muted" }, text), remove);
  }

  function take(chip) {
    chips = chips.filter((other) => other !== chip);
    chip.node.remove();
    parts.button.focus();
  }

  parts.button.addEventListener("click", () => parts.pick.click());
  parts.pick.addEventListener("change", () => {
    add([...parts.pick.files]);
    parts.pick.value = ""; // the same file can be chosen again
  });
  dropZone(parts.zone, add);

  return {
    paths: () => chips.map((chip) => chip.path).filter(Boolean),
    waits: () => chips.some((chip) => chip.waits),
    /** Another workspace was chosen: they are needed there. */
    moved: () => chips.forEach(start),
    clear() {
      chips = [];
      parts.list.replaceChildren();
    },
  };
}
