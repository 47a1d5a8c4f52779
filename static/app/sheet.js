// A decision as a bottom sheet, where the thread is one narrow column. The card itself moves into the sheet and back,
// so that what was typed into it stays. A modal dialog: focus stays inside, Escape closes and never decides.
import { h } from "./dom.js";

const NARROW = matchMedia("(max-width: 47.99em)");

/** {fits(), open(card), close()}. */
export function decisionSheet(dialog) {
  const body = dialog.querySelector(".sheet__body");
  let place = null; // where the card stood in the thread

  dialog.addEventListener("close", () => {
    const card = body.firstElementChild;
    if (place?.isConnected && card) place.replaceWith(card);
    else body.replaceChildren(); // decided meanwhile: the thread has another view of it
    place = null;
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside the sheet
  });
  NARROW.addEventListener("change", () => dialog.open && dialog.close());

  function open(card) {
    if (dialog.open || !card.isConnected) return;
    place = h("div", { class: "sheet__place" });
    place.style.blockSize = `${card.offsetHeight}px`; // the thread stays where it was
    card.replaceWith(place);
    body.append(card);
    dialog.showModal();
    dialog.scrollTop = 0;
    card.focus({ preventScroll: true });
  }

  return { fits: () => NARROW.matches, open, close: () => dialog.open && dialog.close() };
}
