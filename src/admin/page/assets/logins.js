// The part Logins: who is logged in, ending logins, and which ended lately.

import { call, current, mayChange } from "./api.js";
import { badge, byId, confirmed, el, empty, exact, failure, fillPlace, mono, show, table, when } from "./dom.js";

const TONES = { live: "green", revoked: "red" };
const REASONS = {
  logout: "by its owner", admin: "by", provider: "by the provider", reuse: "a refresh token was used twice",
  superseded: "its user let the client in again", limit: "too many logins",
};

/** The search that is shown: what was asked, the entries so far, and where it goes on. */
let search = null;

const ended = ({ reason, operator, caller, provider }) =>
  [REASONS[reason] ?? reason, operator ?? caller ?? provider].filter(Boolean).join(" ");

const subjectLink = sub => el("a", { class: "mono", href: `#logins?subject=${encodeURIComponent(sub)}` }, exact(sub));

const clientLink = id => el("a", { class: "mono", href: `#logins?client=${encodeURIComponent(id)}` }, exact(id));

function state(entry) {
  const { state, revokedAt } = entry;
  if (state !== "revoked") return badge(state, TONES[state]);
  const why = el("span", { class: "note" }, ended(entry));
  return [badge("ended", TONES.revoked), " ", when(revokedAt), " ", why];
}

function device({ label, clientId, address }) {
  const named = label || el("span", { class: "note" }, "no label");
  const client = clientId ? [" · ", clientLink(clientId)] : [];
  return [named, ...client, ...(address ? [" · ", mono(address)] : [])];
}

/** Reads on until there is something to show: a page may be empty although others follow. */
async function more(search) {
  const known = search.entries.length;
  do {
    const query = new URLSearchParams({ ...search.asked, ...(search.next && { after: search.next }) });
    const page = await call("GET", `/admin/v1/tokens?${query}`);
    search.entries.push(...page.tokens);
    search.next = page.next;
  } while (search.next && search.entries.length === known);
  return list(search);
}

function list({ asked: { subject, subjectPrefix, clientId, resource, state: which }, entries, next }) {
  if (!entries.length) {
    const what = which === "all" ? "login" : `${which} login`;
    if (clientId || resource) return empty(`There is no ${what} with this client and resource.`);
    return subject ? empty(`${subject} has no ${what}. A subject is compared byte by byte: try a prefix.`)
      : empty(`There is no ${what}${subjectPrefix ? ` of a subject that begins with ${subjectPrefix}` : ""}.`);
  }
  const columns = [
    ["Subject", ({ sub }) => subjectLink(sub), "long"],
    ["Device", device, "long"],
    ["State", state],
    ["Last used", ({ lastUsedAt }) => when(lastUsedAt)],
    ["Began", ({ createdAt }) => when(createdAt)],
    ["Ends", ({ idleExpiry, absoluteExpiry }) => when(idleExpiry < absoluteExpiry ? idleExpiry : absoluteExpiry)],
    ["Token id", ({ tokenId }) => mono(tokenId), "long"],
  ];
  const button = entry => entry.state !== "live" ? "" : el("button", { type: "button", class: "danger",
    "aria-label": `End the login ${entry.tokenId} of ${entry.sub}`, onclick: () => end(entry) }, "End");
  if (mayChange()) columns.push(["Change", button]);
  const shown = [table("Logins", columns, entries)];
  const below = el("p", { class: "row" });
  if (next) below.append(el("button", { type: "button", onclick: showMore }, "More"));
  if (clientId && mayChange()) {
    const settings = { type: "button", class: "danger", onclick: () => endClient(clientId, subject) };
    below.append(el("button", settings, `End all logins of this client${subject ? " and subject" : ""}`));
  } else if (subject && mayChange()) {
    const settings = { type: "button", class: "danger", onclick: () => endAll(subject) };
    below.append(el("button", settings, "End all logins of this subject"));
  }
  return [...shown, below];
}

async function showMore() {
  const [shown, first] = [search, search.entries.length];
  await fillPlace(byId("logins"), () => more(shown));
  byId("logins").querySelectorAll("tbody tr")[first]?.querySelector("a")?.focus();
}

function load() {
  const shown = { asked: search.asked, entries: [] };
  search = shown;
  fillPlace(byId("logins"), () => more(shown));
  loadEnded();
}

const WHAT = {
  session: ({ sub }) => subjectLink(sub),
  apiKey: ({ sub }) => [el("b", {}, "an API key of "), subjectLink(sub)],
  subject: ({ sub }) => [el("b", {}, "all logins of "), subjectLink(sub)],
  client: ({ clientId, sub }) =>
    [el("b", {}, "all logins of the client "), clientLink(clientId), ...(sub ? [" and of ", subjectLink(sub)] : [])],
  issuer: ({ issuer }) => [el("b", {}, "all tokens of "), mono(issuer)],
  all: () => el("b", {}, "all logins of all subjects"),
  issuer_session: ({ session, issuer }) => [el("b", {}, "one session at "), mono(issuer), ": sid ", mono(session)],
  token: ({ jti }) => [el("b", {}, "one access token: jti "), mono(jti)],
};

function loadEnded() {
  fillPlace(byId("ended"), async () => {
    const { ended: list } = await call("GET", "/admin/v1/tokens/ended?limit=20");
    if (!list.length) return empty("No login was ended.");
    return table("Logins that ended lately", [
      ["When", ({ endedAt }) => when(endedAt)],
      ["What", entry => WHAT[entry.what]?.(entry) ?? entry.what, "long"],
      ["Device", ({ what, label, clientId }) => [label, what === "client" ? "" : clientId].filter(Boolean).join(" · ") || "–", "long"],
      ["Why", ended],
      ["Token id", ({ tokenId }) => (tokenId ? mono(tokenId) : "–"), "long"],
    ], list);
  });
}

async function change(method, path, body, done) {
  try {
    await call(method, path, body);
    show(byId("logins-done"), badge(done, "green"));
    return true;
  } catch (error) {
    show(byId("logins-done"), failure(error));
    return false;
  }
}

async function end(entry) {
  const login = `login of ${entry.sub}${entry.label ? ` on ${entry.label}` : ""}`;
  const text = "Its tokens are rejected at once, and its open streams are closed within a second. "
    + `Token id: ${entry.tokenId}`;
  if (!await confirmed({ title: `End the ${login}?`, text, typed: entry.sub, action: "End the login" })) return;
  if (await change("DELETE", `/admin/v1/tokens/${encodeURIComponent(entry.tokenId)}`, undefined, `The ${login} has ended.`)) {
    const { operator } = current();
    Object.assign(entry, { state: "revoked", revokedAt: new Date().toISOString(), reason: "admin", operator });
    show(byId("logins"), ...[list(search)].flat());
    byId("logins-title").focus();
    loadEnded();
  }
}

async function endAll(subject) {
  const text = "Every token that the gateway issued to this subject so far is rejected at once, and its open streams "
    + "are closed within a second.";
  if (!await confirmed({ title: "End all logins of this subject?", text, typed: subject, action: "End all" })) return;
  // In the body: a browser would read the subject `..` as a step up in the path.
  if (await change("POST", "/admin/v1/revocations", { subject }, `All logins of ${subject} have ended.`)) {
    byId("logins-title").focus();
    load();
  }
}

async function endClient(clientId, subject) {
  const text = "Every token that the gateway issued to this client so far is rejected at once, and its open streams "
    + "are closed within a second. Users can grant it again, unless oauth.denied_clients has it.";
  const forSubject = subject ? ` for ${subject}` : "";
  const title = `End all logins of this client${forSubject}?`;
  if (!await confirmed({ title, text, typed: clientId, action: "End all" })) return;
  const body = subject ? { clientId, subject } : { clientId };
  if (await change("POST", "/admin/v1/revocations", body, `All logins of ${clientId}${forSubject} have ended.`)) {
    byId("logins-title").focus();
    load();
  }
}

export function enter(_, query) {
  const [subject, prefix, which, client, resource] =
    ["subject", "prefix", "state", "client", "resource"].map(name => query.get(name) ?? "");
  byId("subject").value = subject || prefix;
  byId("match").value = subject ? "subject" : "prefix";
  byId("login-state").value = which || "live";
  byId("login-client").value = client;
  byId("login-resource").value = resource;
  const asked = { state: which || "live" };
  if (subject) asked.subject = subject;
  else if (prefix) asked.subjectPrefix = prefix;
  if (client) asked.clientId = client;
  if (resource) asked.resource = resource;
  search = { asked };
  show(byId("logins-done"));
  load();
}

export function clear() {
  search = null;
  for (const id of ["subject", "login-client", "login-resource"]) byId(id).value = "";
  for (const id of ["logins", "ended", "logins-done"]) show(byId(id));
}

byId("search").addEventListener("submit", event => {
  event.preventDefault();
  const query = new URLSearchParams();
  if (byId("subject").value) query.set(byId("match").value, byId("subject").value);
  if (byId("login-state").value !== "live") query.set("state", byId("login-state").value);
  for (const name of ["client", "resource"]) {
    if (byId(`login-${name}`).value) query.set(name, byId(`login-${name}`).value);
  }
  const hash = `#logins${query.size ? `?${query}` : ""}`;
  if (location.hash === hash) enter("", query);
  else location.hash = hash;
});
