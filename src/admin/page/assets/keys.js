// The part Keys: those of other issuers, and the gateway's own.

import { call, mayChange } from "./api.js";
import {
  badge, byId, confirmed, duration, el, empty, failure, fillPlace, mono, number, show, table, when,
} from "./dom.js";
import { ISSUER_TONES, drawResult, watch } from "./state.js";

const KEY_TONES = { active: "green", pending: "amber", revoked: "red" };
const STEPS = { pending: "signs", active: "retires", retired: "accepted only at refreshes" };

function issuers(list) {
  if (!list.length) return empty("No [[issuer]] is configured: the gateway accepts only its own tokens.");
  const age = ({ ageSeconds, maxAgeSeconds }) =>
    ageSeconds === undefined ? "–" : [duration(ageSeconds), maxAgeSeconds ? ` of ${duration(maxAgeSeconds)}` : ""];
  const source = ({ kind, source, lastError }) =>
    [el("span", { class: "note" }, kind), " ", mono(source), lastError ? el("p", { class: "red" }, lastError) : ""];
  return table("Keys of other issuers", [
    ["Issuer", ({ issuer }) => mono(issuer), "long name"],
    ["State", ({ state }) => badge(state, ISSUER_TONES[state])],
    ["Keys", ({ keys }) => number(keys), "number"],
    ["Age", age],
    ["Last attempt", ({ lastAttemptAt }) => when(lastAttemptAt)],
    ["Source", source, "long"],
  ], list);
}

function signing({ keys, nextRotation }) {
  show(byId("signing-note"), nextRotation ? "The next rotation is " : "", when(nextRotation));
  const columns = [
    ["Key id", ({ kid }) => mono(kid), "long"],
    ["State", ({ state }) => badge(state, KEY_TONES[state])],
    ["Algorithm", ({ algorithm }) => algorithm],
    ["Created", ({ createdAt }) => when(createdAt)],
    ["Next step", ({ state, nextStepAt }) => nextStepAt ? [`${STEPS[state] ?? "deleted"} `, when(nextStepAt)] : "–"],
  ];
  const button = ({ kid, state }) => {
    const label = `Revoke the key ${kid}`;
    const settings = { type: "button", class: "danger", "aria-label": label, onclick: () => revoke(kid) };
    return state === "revoked" ? "" : el("button", settings, "Revoke");
  };
  if (mayChange()) columns.push(["Change", button]);
  const shown = table("Signing keys", columns, keys);
  const rotateButton = el("button", { type: "button", onclick: rotate }, "Publish the next key");
  return mayChange() ? [shown, el("p", {}, rotateButton)] : shown;
}

async function change(path, body, done) {
  try {
    await call("POST", path, body);
    show(byId("keys-done"), badge(done, "green"));
  } catch (error) {
    show(byId("keys-done"), failure(error));
  }
  load();
}

async function rotate() {
  const text = "Publishes the next key now. It signs after tokens.key_ahead, so that services which cache the key set "
    + "have it in time.";
  if (await confirmed({ title: "Publish the next signing key?", text, typed: "rotate", action: "Publish" })) {
    await change("/admin/v1/keys/rotate", {}, "The next key is published.");
  }
}

async function revoke(kid) {
  const text = "The gateway rejects every token that this key signed, at once. Users must log in again.";
  const typed = kid.slice(0, 8);
  if (await confirmed({ title: `Revoke the key ${kid}?`, text, typed, action: "Revoke" })) {
    await change(`/admin/v1/keys/${encodeURIComponent(kid)}/revoke`, {}, `The key ${kid} is revoked.`);
  }
}

const load = () => fillPlace(byId("signing"), async () => signing(await call("GET", "/admin/v1/keys")));

export function enter() {
  watch("issuers", result => drawResult(byId("issuers"), result, ({ issuers: list }) => issuers(list)));
  show(byId("keys-done"));
  load();
}

export function clear() {
  for (const id of ["signing", "signing-note", "keys-done"]) show(byId(id));
}
