// What reaches a person who looks elsewhere: the count in title and icon, and a notification if it was switched on.
import { prefs } from "./chrome.js";
import { t } from "./text.js";

export function attention(statics) {
  const link = document.querySelector('link[rel="icon"]');
  const base = document.title.replace(/^\(\d+\) /, "");
  let title = base;
  let count = 0;
  const told = new Set();

  function show() {
    const text = count ? `(${count}) ${title}` : title;
    if (document.title !== text) document.title = text;
    const icon = `${statics}${count ? "mark-waiting" : "mark"}.svg`;
    if (link && link.getAttribute("href") !== icon) link.setAttribute("href", icon);
    if (count) navigator.setAppBadge?.(count).catch(() => {});
    else navigator.clearAppBadge?.().catch(() => {});
  }

  return {
    name(name) {
      title = name ? `${name} · Pilothouse` : base;
      show();
    },
    waiting(next) {
      if (next === count) return;
      count = next;
      show();
    },
    /** Once per decision, only while nobody looks. */
    notify(id, text) {
      if (told.has(id)) return;
      told.add(id);
      if (!document.hidden || prefs.get("notify", "off") !== "on" || globalThis.Notification?.permission !== "granted") return;
      const note = new Notification(t("Waits for you"), { body: text, tag: id });
      note.onclick = () => {
        focus();
        note.close();
      };
    },
  };
}
