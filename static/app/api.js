// The JSON API as the page uses it: the cookie's identity, the CSRF header, one kind of error.

import { told } from "./told.js";

const KEEPALIVE_CHARS = 16_000; // browsers bound it at 64 KiB

let csrf = { cookie: "csrftoken", header: "X-CSRFToken", token: "" };

export function identify(boot) {
  csrf = boot.csrf;
}

/** A refusal of the server (`status` ≥ 400), or no answer at all (`status` 0). */
export class ApiError extends Error {
  constructor(status, code, message, details) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details ?? {};
  }

  get unsent() {
    return this.status === 0;
  }
}

/** The cookie wins over the page's token: signing in elsewhere changes it. */
function token() {
  const found = document.cookie.split("; ").find((part) => part.startsWith(`${csrf.cookie}=`));
  return found ? decodeURIComponent(found.slice(csrf.cookie.length + 1)) : csrf.token;
}

export async function api(method, path, body, { key, signal, timeout = 20_000 } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const text = body === undefined ? undefined : JSON.stringify(body);
  const keepalive = method !== "GET" && (text?.length ?? 0) < KEEPALIVE_CHARS; // a press arrives although the page goes
  const stops = [AbortSignal.timeout(timeout), ...(signal ? [signal] : [])];
  return answer(await send(method, path, { headers, body: text, keepalive, signal: AbortSignal.any(stops) }));
}

/** Bytes to the server, as they are: they may take long. */
export async function put(path, bytes) {
  return answer(await send("PUT", path, { headers: { "Content-Type": "application/octet-stream" }, body: bytes }));
}

/** Bytes from the server, and the tag that says which ones they are. */
export async function bytesOf(path) {
  const response = await send("GET", path, {});
  if (!response.ok) return answer(response);
  try {
    return { bytes: await response.arrayBuffer(), tag: (response.headers.get("ETag") ?? "").replaceAll('"', "") };
  } catch (error) {
    throw new ApiError(0, "unreachable", String(error)); // cut off in the middle
  }
}

/** Only the tag: the bytes stay where they are. */
export async function tagOf(path) {
  const response = await send("GET", path, {});
  if (!response.ok) return answer(response);
  await response.body?.cancel();
  return (response.headers.get("ETag") ?? "").replaceAll('"', "");
}

async function send(method, path, { headers = {}, ...options }) {
  const own = { Accept: "application/json", ...(method === "GET" ? {} : { [csrf.header]: token() }) };
  try {
    return await fetch(path, { method, headers: { ...own, ...headers }, credentials: "same-origin", ...options });
  } catch (error) {
    throw new ApiError(0, "unreachable", String(error));
  }
}

async function answer(response) {
  let data = null;
  try {
    data = response.status === 204 ? null : await response.json();
  } catch (error) {
    if (response.ok) throw new ApiError(0, "unreachable", String(error)); // cut off in the middle
  }
  if (response.ok) return data;
  if (response.status === 401) signInAgain();
  const { code = "unknown", message = response.statusText, details } = data?.error ?? {};
  throw new ApiError(response.status, code, told(message), details);
}

/** The cookie is no longer good: the page cannot do anything but ask for it again. */
function signInAgain() {
  location.assign(`/sign-in?next=${encodeURIComponent(location.pathname)}`);
}

export const get = (path, options) => api("GET", path, undefined, options);
export const post = (path, body, options) => api("POST", path, body, options);

/** Every page of a list. */
export async function all(path, most = 1000) {
  const items = [];
  let cursor = null;
  do {
    const joined = cursor ? `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}` : path;
    const page = await get(joined);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  return items;
}
