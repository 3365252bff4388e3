// Calls of the admin API, with the token of a session. It is kept for this tab only.

const KEPT = "bearward.session";

/** What went wrong with a call. */
export class CallError extends Error {
  constructor(call, status, body) {
    super(body?.error_description ?? (status ? "The response is not that of the admin API." : NO_RESPONSE));
    Object.assign(this, { call, status, code: body?.error, requestId: body?.requestId, body });
  }
}

const NO_RESPONSE = "No response: the gateway is down, or the connection to it was cut.";

let session = null;
let onEnd = () => {};

export const current = () => session;

/** Whether the operator may change something. */
export const mayChange = () => session?.role === "operate";

/** `ended` is called when the gateway does not know the session any more. */
export function whenEnded(ended) {
  onEnd = ended;
}

async function send(method, path, token, body, signal) {
  // A browser sends no other letters in a header.
  if (/[^!-~]/.test(token ?? "")) throw new CallError(`${method} ${path}`, 401, null);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, signal, cache: "no-store", body: body && JSON.stringify(body) };
  try {
    return await fetch(path, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError(`${method} ${path}`, 0, null);
  }
}

async function checked(method, path, response) {
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) throw new CallError(`${method} ${path}`, response.status, body);
  return body;
}

/** Begins a session with the token of an operator. */
export async function signIn(token) {
  const response = await send("POST", "/admin/v1/sessions", token);
  session = await checked("POST", "/admin/v1/sessions", response);
  sessionStorage.setItem(KEPT, JSON.stringify(session));
}

/** Returns true if this tab has a session that still lives. */
export async function resume() {
  session = kept();
  if (!session?.token) return false;
  try {
    Object.assign(session, await call("GET", "/admin/v1/sessions/current"));
    return true;
  } catch (error) {
    if (error.status === 401) return false;
    throw error;
  }
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

export function forget() {
  session = null;
  sessionStorage.removeItem(KEPT);
}

/** Ends the session at the gateway. A gateway that is down has no sessions any more. */
export async function signOut() {
  const ended = session && send("DELETE", "/admin/v1/sessions/current", session.token).catch(() => null);
  forget();
  await ended;
}

/** A call of the admin API. Returns the JSON of its response. */
export async function call(method, path, body, signal) {
  const used = session;
  const response = await send(method, path, used?.token, body, signal);
  if (response.status === 401 && used === session) {
    forget();
    onEnd();
  }
  return checked(method, path, response);
}

/** The JSON of a probe, which also has one if its status is 503. */
export async function probe(path) {
  const response = await send("GET", path);
  return response.json();
}

/** Calls `event` for each event of a stream, until the stream ends. */
export async function stream(path, event, signal) {
  const response = await send("GET", path, session?.token, undefined, signal);
  if (!response.ok) await checked("GET", path, response);
  const reader = response.body.getReader();
  const text = new TextDecoder();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    left += text.decode(value, { stream: true });
    const events = left.split("\n\n");
    left = events.pop();
    for (const lines of events) if (lines.startsWith("data: ")) event(JSON.parse(lines.slice(6)));
  }
}
