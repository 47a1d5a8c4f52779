// A file that a run made: its code can be copied, and what the server's HTML says is said in the reader's language.
import { dressed } from "../app/answer.js";
import { begin } from "../app/chrome.js";

begin();
dressed(document.querySelector(".md") ?? document.body);
