// How the line to the server stands, in words, with the seconds until the next try.
import { announce, alarm } from "./chrome.js";
import { button, glyph, h, replace, say } from "./dom.js";
import { moment, t } from "./text.js";

const AWAY_AFTER = 4; // tries, until it counts as the server and not as a hiccup

export function lineBanner(node, retry) {
  let ticking = 0;
  let spoken = "";

  function show(kind, symbol, text, act) {
    const banner = h("div", { class: kind ? `banner banner--${kind}` : "banner" }, glyph(symbol), h("span", {}, text), act ?? null);
    replace(node, banner);
    node.hidden = false;
    return banner.querySelector("span");
  }

  function lost({ at, again, failures }) {
    const away = failures >= AWAY_AFTER;
    const act = button(t("Try now"), { kind: "btn--small", onclick: retry });
    const words = () => {
      const left = Math.max(0, Math.ceil((again - Date.now()) / 1000));
      return away
        ? t("The server does not answer since {time}. Your draft is kept in this browser; trying again in {n} s.", { time: moment(at), n: left })
        : t("Connection lost. Showing what arrived until {time}. The task goes on without this page; trying again in {n} s.", { time: moment(at), n: left });
    };
    const text = show(away ? "fail" : "", away ? "cross" : "gap", words(), act);
    ticking = setInterval(() => say(text, words()), 1000);
    once(away ? "away" : "lost", () => (away ? alarm(t("The server does not answer.")) : announce(t("Connection lost. Trying again."))));
  }

  function once(what, speak) {
    if (spoken === what) return;
    spoken = what;
    speak();
  }

  return (line) => {
    clearInterval(ticking);
    if (line.state === "lost") return lost(line);
    if (line.state === "gone") return void show("fail", "cross", t("This session is no longer here: it was deleted, or you may no longer see it."));
    if (line.state === "back") {
      show("ok", "check", t("Connected again. Nothing was missed."));
      once("back", () => announce(t("Connected again. Nothing was missed.")));
      ticking = setTimeout(() => (node.hidden = true), 4000);
      return undefined;
    }
    spoken = "";
    node.hidden = true;
    return undefined;
  };
}
