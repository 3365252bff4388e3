// What is red is red on every part: asks every 10 seconds, and tells the parts that show it.

import { call, current, probe } from "./api.js";
import { badge, byId, duration, el, empty, failure, mono, number, show, table } from "./dom.js";

const EVERY = 10_000;
const DAYS_RED = 7;
const DAYS_AMBER = 21;

const CALLS = {
  ready: () => probe("/readyz"),
  certificates: () => call("GET", "/admin/v1/certificates"),
  issuers: () => call("GET", "/admin/v1/issuers"),
  upstreams: () => call("GET", "/admin/v1/upstreams"),
  stats: () => call("GET", "/admin/v1/stats?seconds=60"),
};

/** The last result of each call: `{ value }` or `{ error }`. */
let results = {};
let timer = null;
let asking = null;
const watching = new Map();

/** `draw(result)` is called now, if there is a result, and whenever `name` was asked again. */
export function watch(name, draw) {
  watching.set(name, draw);
  if (results[name]) draw(results[name]);
}

export const daysTone = days => (days < DAYS_RED ? "red" : days < DAYS_AMBER ? "amber" : "green");
const count = days => (days === 1 ? "1 day" : `${days} days`);
/** Whole days, rounded down: -1 on the first day after the end. */
export const daysLeft = days =>
  days < -1 ? `expired ${count(-days - 1)} ago` : days < 0 ? "expired today" : `${count(days)} left`;
export const ISSUER_TONES = { current: "green", failing: "amber", stale: "red", missing: "red" };
const SERVER_TONES = { in: "green", returning: "amber", ejected: "red", unhealthy: "red" };

/** Alerts: `[tone, part, text]`. */
function alerts() {
  const errors = Object.values(results).flatMap(({ error }) => error ?? []);
  // One line is enough for a gateway that is down.
  const shown = errors.find(({ status }) => status === 0);
  const found = (shown ? [shown] : errors).map(({ call, status, message }) =>
    ["red", null, `${call ?? "A call"}: ${status || ""} ${message}`]);
  const { ready, certificates, issuers, upstreams, stats } =
    Object.fromEntries(Object.entries(results).map(([name, { value }]) => [name, value]));
  if (ready?.reason) found.push(["red", /key/.test(ready.reason) ? "keys" : "now", `Not ready: ${ready.reason}`]);
  for (const { address, certificates: served } of certificates?.listeners ?? []) {
    for (const { names, file, daysLeft: days } of served) {
      if (days >= DAYS_AMBER) continue;
      found.push([daysTone(days), "certificates", `Certificate ${names[0] ?? file} of ${address}: ${daysLeft(days)}`]);
    }
  }
  for (const { issuer, state, keys, ageSeconds } of issuers?.issuers ?? []) {
    if (state === "current") continue;
    const text = { missing: "no keys", failing: "its keys cannot be fetched", stale: "its keys are too old" }[state];
    const rest = state === "missing" ? "" : `; ${keys} keys, ${duration(ageSeconds)} old`;
    found.push([ISSUER_TONES[state], "keys", `Issuer ${issuer}: ${text}${rest}`]);
  }
  for (const { name, servers } of upstreams?.upstreams ?? []) {
    for (const { server, state } of servers) {
      if (state === "in") continue;
      found.push([SERVER_TONES[state] ?? "red", "upstreams", `Server ${server} of ${name}: ${state}`]);
    }
  }
  const lost = (stats?.seconds ?? []).reduce((sum, second) => sum + second.logLinesDropped, 0);
  if (lost) found.push(["red", "now", `${number(lost)} lines of the access log were lost in the last minute`]);
  return found.sort(([one], [other]) => (one === other ? 0 : one === "red" ? -1 : 1));
}

let told = null;
function draw() {
  const found = alerts();
  const [red, amber] = ["red", "amber"].map(tone => found.filter(([other]) => other === tone).length);
  const text = red ? `${red} ${red === 1 ? "problem" : "problems"}` : amber ? `${amber} to look at` : "All is well";
  // The same texts are not drawn again, so that focus stays and a screen reader is quiet.
  const key = JSON.stringify(found);
  if (told === key) return;
  told = key;
  byId("state").className = red ? "red" : amber ? "amber" : "green";
  show(byId("summary"), text);
  const alert = ([tone, part, text]) =>
    el("li", { class: tone }, part ? el("a", { href: `#${part}` }, text) : el("span", {}, text));
  show(byId("alerts"), ...found.map(alert));
  for (const link of document.querySelectorAll("nav a")) {
    link.querySelector(".flag")?.remove();
    const own = found.filter(([, part]) => `#${part}` === link.hash);
    const tone = own.some(([tone]) => tone === "red") ? "red" : "amber";
    if (own.length) {
      const spoken = el("span", { class: "hidden" }, tone === "red" ? " problems" : " to look at");
      link.append(el("span", { class: `flag ${tone}` }, ` ${own.length}`, spoken));
    }
  }
}

/** Asks now, unless it is asking. */
function ask() {
  const session = current();
  if (asking?.session !== session) {
    const own = { session };
    own.done = askAll(session).finally(() => { if (asking === own) asking = null; });
    asking = own;
  }
  return asking.done;
}

/** One call after the other, so that the page uses few connections. */
async function askAll(session) {
  clearTimeout(timer);
  for (const [name, ask] of Object.entries(CALLS)) {
    const result = await ask().then(value => ({ value }), error => ({ error }));
    if (!session || current() !== session) return;
    results[name] = result;
    watching.get(name)?.(result);
  }
  draw();
  timer = setTimeout(() => (document.hidden ? null : ask()), EVERY);
}

/** Shows a result in a place, unless it shows the same already. */
const drawn = new WeakMap();
export function drawResult(place, { value, error }, make) {
  const key = JSON.stringify(value ?? error.message);
  if (drawn.get(place) === key && place.hasChildNodes()) return;
  drawn.set(place, key);
  show(place, ...[error ? failure(error, ask) : make(value)].flat());
}

export function start() {
  show(byId("summary"), "Looking …");
  ask();
}

export function stop() {
  clearTimeout(timer);
  [results, told] = [{}, null];
  byId("state").className = "";
  for (const id of ["summary", "alerts", "issuers", "listeners", "servers"]) show(byId(id));
  document.querySelectorAll("nav .flag").forEach(flag => flag.remove());
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && current()) ask();
});

function upstream({ name, servers }) {
  const percent = share => `${Math.round(share * 100)} %`;
  return el("section", { class: "card" }, el("h2", {}, name), table(`Servers of ${name}`, [
    ["Server", ({ server }) => mono(server), "long"],
    ["State", ({ state }) => badge(state === "in" ? "in" : `out: ${state}`.replace("out: returning", "returning"),
      SERVER_TONES[state])],
    ["Share", ({ share }) => percent(share), "number"],
    ["In flight", ({ inFlight }) => number(inFlight), "number"],
    ["Ejections", ({ ejections }) => number(ejections), "number"],
    ["Retries", ({ retries }) => number(retries), "number"],
    ["Failed checks", ({ failedChecks }) => number(failedChecks), "number"],
    ["Addresses", ({ addresses }) => mono(addresses.join(", ")), "long"],
  ], servers));
}

/** The part Upstreams. */
export const upstreams = {
  enter() {
    watch("upstreams", result => drawResult(byId("servers"), result, ({ upstreams }) =>
      upstreams.length ? upstreams.map(upstream) : empty("No [[upstream]] is configured.")));
  },
};
