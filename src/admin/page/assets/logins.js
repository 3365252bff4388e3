// The part Logins: who is logged in, ending logins, and which ended lately.

import { call, mayChange } from "./api.js";
import { badge, byId, confirmed, el, empty, failure, fillPlace, mono, show, table, when } from "./dom.js";

const TONES = { live: "green", revoked: "red" };
const REASONS = {
  logout: "by its owner", admin: "by an operator", reuse: "a refresh token was used twice", limit: "too many logins",
};

/** The search that is shown, its entries so far, and where it goes on. */
let search = null;
let entries = [];
let next;

const ended = (reason, operator) => `${REASONS[reason] ?? reason ?? ""}${operator ? ` ${operator}` : ""}`;

const subjectLink = sub => el("a", { class: "mono", href: `#logins?subject=${encodeURIComponent(sub)}` }, sub);

function state({ state, revokedAt, reason, operator }) {
  if (state !== "revoked") return badge(state, TONES[state]);
  return [badge("ended", TONES.revoked), " ", when(revokedAt), " ", el("span", { class: "note" }, ended(reason, operator))];
}

/** Reads on until there is something to show: a page may be empty although others follow. */
async function more() {
  const known = entries.length;
  do {
    const query = new URLSearchParams({ ...search, ...(next && { after: next }) });
    const page = await call("GET", `/admin/v1/tokens?${query}`);
    entries.push(...page.tokens);
    next = page.next;
  } while (next && entries.length === known);
}

function list() {
  const { subject } = search;
  if (!entries.length) {
    const what = search.state === "all" ? "login" : `${search.state} login`;
    return subject ? empty(`${subject} has no ${what}. A subject is compared byte by byte: try a prefix.`)
      : empty(`There is no ${what}${search.subjectPrefix ? ` of a subject that begins with ${search.subjectPrefix}` : ""}.`);
  }
  const columns = [
    ["Subject", ({ sub }) => subjectLink(sub), "long"],
    ["Device", ({ label, clientId, address }) =>
      [label || el("span", { class: "note" }, "no label"), clientId ? ` · ${clientId}` : "", address ? [" · ", mono(address)] : []].flat()],
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
  if (subject && mayChange()) {
    below.append(el("button", { type: "button", class: "danger", onclick: () => endAll(subject) }, "End all logins of this subject"));
  }
  return [...shown, below];
}

async function showMore() {
  const first = entries.length;
  await fillPlace(byId("logins"), async () => { await more(); return list(); });
  byId("logins").querySelectorAll("tbody tr")[first]?.querySelector("a")?.focus();
}

function load() {
  [entries, next] = [[], undefined];
  fillPlace(byId("logins"), async () => { await more(); return list(); });
  loadEnded();
}

const WHAT = {
  session: ({ sub }) => subjectLink(sub),
  subject: ({ sub }) => [el("b", {}, "all logins of "), subjectLink(sub)],
  all: () => el("b", {}, "all logins of all subjects"),
};

function loadEnded() {
  fillPlace(byId("ended"), async () => {
    const { ended: list } = await call("GET", "/admin/v1/tokens/ended?limit=20");
    if (!list.length) return empty("No login was ended.");
    return table("Logins that ended lately", [
      ["When", ({ endedAt }) => when(endedAt)],
      ["What", entry => WHAT[entry.what]?.(entry) ?? entry.what, "long"],
      ["Device", ({ label, clientId }) => [label, clientId].filter(Boolean).join(" · ") || "–"],
      ["Why", ({ reason, operator }) => ended(reason, operator)],
      ["Token id", ({ tokenId }) => (tokenId ? mono(tokenId) : "–"), "long"],
    ], list);
  });
}

async function change(path, done) {
  try {
    await call("DELETE", path);
    show(byId("logins-done"), badge(done, "green"));
    return true;
  } catch (error) {
    show(byId("logins-done"), failure(error));
    return false;
  }
}

async function end(entry) {
  const device = entry.label ? ` on ${entry.label}` : "";
  const text = `Its tokens are rejected at once, and its open streams are closed within a second. Token id: ${entry.tokenId}`;
  if (!await confirmed({ title: `End the login of ${entry.sub}${device}?`, text, action: "End the login" })) return;
  if (await change(`/admin/v1/tokens/${encodeURIComponent(entry.tokenId)}`, `The login of ${entry.sub}${device} has ended.`)) {
    Object.assign(entry, { state: "revoked", revokedAt: new Date().toISOString(), reason: "admin" });
    show(byId("logins"), ...[list()].flat());
    byId("logins-title").focus();
    loadEnded();
  }
}

async function endAll(subject) {
  const text = "Every token that the gateway issued to this subject so far is rejected at once, and its open streams are "
    + "closed within a second.";
  if (!await confirmed({ title: "End all logins of this subject?", text, typed: subject, action: "End all" })) return;
  if (await change(`/admin/v1/subjects/${encodeURIComponent(subject)}/tokens`, `All logins of ${subject} have ended.`)) {
    byId("logins-title").focus();
    load();
  }
}

export function enter(_, query) {
  const [subject, prefix, which] = ["subject", "prefix", "state"].map(name => query.get(name) ?? "");
  byId("subject").value = subject || prefix;
  byId("match").value = subject ? "subject" : "prefix";
  byId("login-state").value = which || "live";
  search = { state: which || "live" };
  if (subject) search.subject = subject;
  else if (prefix) search.subjectPrefix = prefix;
  show(byId("logins-done"));
  load();
}

export function clear() {
  [search, entries, next] = [null, [], undefined];
  for (const id of ["logins", "ended", "logins-done"]) show(byId(id));
}

byId("search").addEventListener("submit", event => {
  event.preventDefault();
  const query = new URLSearchParams();
  if (byId("subject").value) query.set(byId("match").value, byId("subject").value);
  if (byId("login-state").value !== "live") query.set("state", byId("login-state").value);
  const hash = `#logins${query.size ? `?${query}` : ""}`;
  if (location.hash === hash) enter("", query);
  else location.hash = hash;
});
