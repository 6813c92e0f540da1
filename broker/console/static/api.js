// Requests to /api/v1. Errors are Error objects whose message the broker has written for people.

/** The broker ends a request after 20 s. */
const RESPONSE_MS = 25_000;

function address(path, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  }
  const text = query.toString();
  return `/api/v1${path}${text ? `?${text}` : ""}`;
}

/** Returns a path with encoded parts: path`/topics/${name}/records`. */
export function path(parts, ...names) {
  return parts.reduce((text, part, at) => text + encodeURIComponent(names[at - 1]) + part);
}

async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error ?? message;
  } catch {
    // not JSON: the status has to do
  }
  return new Error(message);
}

async function fetched(url, options, late = "The broker does not respond.") {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(late);
  }
}

export async function getJson(path, params, signal) {
  const limit = AbortSignal.timeout(RESPONSE_MS);
  const response = await fetched(address(path, params), { signal: signal ? AbortSignal.any([signal, limit]) : limit });
  if (!response.ok) throw await failure(response);
  return response.json();
}

export async function sendJson(method, path, body, params) {
  const options = { method, headers: { "X-Requested-With": "milena-console" }, signal: AbortSignal.timeout(RESPONSE_MS) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetched(address(path, params), options, "The broker does not respond. It may have made the change, or a part of it: look before you repeat it.");
  if (!response.ok) throw await failure(response);
  return response.json();
}

let writing;

/** Returns whether the broker lets the console change anything; asked once, because the setting changes with a restart. */
export function mayWrite() {
  writing ??= getJson("/overview").then((state) => state.is_writing_enabled, (error) => { writing = undefined; throw error; });
  return writing;
}

/** Calls `onLine` with each line of a long read as it arrives. Aborting `signal` ends it. */
export async function readLines(path, params, onLine, signal) {
  const response = await fetched(address(path, params), { signal });
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) onLine(JSON.parse(line));
  }
}
