// The part API keys: which there are, issuing one, and revoking one.

import { call, mayChange } from "./api.js";
import { badge, byId, confirmed, el, empty, exact, facts, failure, fillPlace, mono, show, table, when } from "./dom.js";

const TONES = { live: "green", revoked: "red" };

/** What is shown: the subject that was asked for, the keys so far, and where the list goes on. */
let shown = null;

const subjectLink = sub => el("a", { class: "mono", href: `#apikeys?subject=${encodeURIComponent(sub)}` }, exact(sub));

const state = ({ state, revokedAt }) => [badge(state, TONES[state]), ...(revokedAt ? [" ", when(revokedAt)] : [])];

function named({ label, clientId }) {
  return [label || el("span", { class: "note" }, "no label"), clientId ? ` · ${clientId}` : ""];
}

function list({ subject, keys, next }) {
  if (!keys.length) return empty(subject ? `${subject} has no API key.` : "There is no API key.");
  const columns = [
    ["Subject", ({ sub }) => subjectLink(sub), "long"],
    ["Label", named, "long"],
    ["State", state],
    ["Scope", ({ scope }) => (scope ? mono(scope) : "–"), "long"],
    ["Rate", ({ rate }) => rate ?? "–", "number"],
    ["Last used", ({ lastUsedAt }) => (lastUsedAt ? when(lastUsedAt) : "never")],
    ["Ends", ({ expiresAt }) => when(expiresAt)],
    ["Key id", ({ keyId }) => mono(keyId), "long"],
  ];
  const button = key => key.state !== "live" ? "" : el("button", { type: "button", class: "danger",
    "aria-label": `Revoke the API key ${key.keyId} of ${key.sub}`, onclick: () => revoke(key) }, "Revoke");
  if (mayChange()) columns.push(["Change", button]);
  const more = next ? el("p", { class: "row" }, el("button", { type: "button", onclick: showMore }, "More")) : "";
  return [table("API keys", columns, keys), more];
}

async function read(part) {
  const query = new URLSearchParams({ ...(part.subject && { subject: part.subject }),
    ...(part.next && { after: part.next }) });
  const page = await call("GET", `/admin/v1/api-keys?${query}`);
  part.keys.push(...page.apiKeys);
  part.next = page.next;
  return list(part);
}

function load() {
  const part = { subject: shown.subject, keys: [] };
  shown = part;
  return fillPlace(byId("apikeys"), () => read(part));
}

async function showMore() {
  const [part, first] = [shown, shown.keys.length];
  await fillPlace(byId("apikeys"), () => read(part));
  byId("apikeys").querySelectorAll("tbody tr")[first]?.querySelector("a")?.focus();
}

async function revoke(key) {
  const what = `API key of ${key.sub}${key.label ? `, ${key.label}` : ""}`;
  const text = "The program that uses it is rejected at once, and its open streams are closed within a second. "
    + `Key id: ${key.keyId}`;
  if (!await confirmed({ title: `Revoke the ${what}?`, text, typed: key.sub, action: "Revoke" })) return;
  try {
    await call("DELETE", `/admin/v1/api-keys/${encodeURIComponent(key.keyId)}`);
    show(byId("apikeys-done"), badge(`The ${what} is revoked.`, "green"));
    Object.assign(key, { state: "revoked", revokedAt: new Date().toISOString() });
    show(byId("apikeys"), ...[list(shown)].flat());
    byId("apikeys-title").focus();
  } catch (error) {
    show(byId("apikeys-done"), failure(error));
  }
}

/** The new key, which is nowhere else. */
function issued({ apiKey, keyId, expiresAt }) {
  const field = el("input", { id: "issued-key", class: "mono", readonly: true, autocomplete: "off" });
  field.value = apiKey;
  field.addEventListener("focus", () => field.select());
  return [
    el("h3", { tabindex: "-1" }, badge("issued", "green")),
    el("label", { for: "issued-key" }, "API key ", el("small", {}, "shown only now: copy it")),
    field,
    facts([["Key id", keyId, "mono"], ["Ends", when(expiresAt)]]),
  ];
}

async function issue() {
  const value = name => byId(`issue-${name}`).value.trim();
  const asked = { subject: byId("issue-subject").value, scope: value("scope"), label: value("label") };
  if (value("rate")) asked.rate = value("rate");
  if (value("days")) asked.expiresIn = Math.round(Number(value("days")) * 86400);
  const answer = await call("POST", "/admin/v1/api-keys", asked);
  byId("issue").reset();
  show(byId("issued"), ...issued(answer));
  byId("issued-key").focus();
  load();
}

export function enter(_, query) {
  shown = { subject: query.get("subject") ?? "" };
  byId("key-subject").value = shown.subject;
  byId("issue").hidden = !mayChange();
  show(byId("apikeys-done"));
  load();
}

/** A new key stays no longer than the part is shown. */
export function leave() {
  byId("issue").reset();
  show(byId("issued"));
}

export function clear() {
  leave();
  shown = null;
  byId("key-subject").value = "";
  for (const id of ["apikeys", "apikeys-done"]) show(byId(id));
}

byId("issue").addEventListener("submit", async event => {
  event.preventDefault();
  try {
    await issue();
  } catch (error) {
    show(byId("issued"), failure(error));
  }
});

byId("key-search").addEventListener("submit", event => {
  event.preventDefault();
  const subject = byId("key-subject").value;
  const query = new URLSearchParams(subject ? { subject } : {});
  const hash = `#apikeys${query.size ? `?${query}` : ""}`;
  if (location.hash === hash) enter("", query);
  else location.hash = hash;
});
