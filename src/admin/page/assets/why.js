// The part Why 401: one rejection by its request id, the last ones, and what the gateway would decide now.

import { call } from "./api.js";
import { badge, byId, el, empty, facts, failure, fillPlace, mono, show, table, when } from "./dom.js";

const FILTERS = ["reason", "client", "subject", "route"];

/** 0: the client disconnected before the response. */
const status = ({ status, observed }) => {
  if (observed) return badge("observed", "amber");
  return status ? badge(status, status >= 500 ? "red" : "amber") : badge("closed");
};

const filterLink = (name, value) =>
  value && el("a", { class: "mono", href: `#why?${name}=${encodeURIComponent(value)}` }, value);

function details(rejection) {
  const { requestId, reason, message, detail, observed, broken, method, host, path, subject } = rejection;
  return el("div", { class: "result" },
    el("h3", { tabindex: "-1" }, status(rejection), " ", mono(reason)),
    el("p", {}, message, detail ? `: ${detail}` : ""),
    observed ? el("p", { class: "note" }, "The request was forwarded: its route has enforce = false.") : "",
    broken ? el("p", { class: "note" }, "The request was forwarded, and its response broke off.") : "",
    facts([
      ["When", when(rejection.time)],
      ["Request", mono(`${method} ${host ?? ""}${path}`)],
      ["Route", filterLink("route", rejection.route)],
      ["Client", filterLink("client", rejection.client)],
      ["Subject", filterLink("subject", subject)],
      ["Token id", rejection.tokenId, "mono"],
      ["Client id", rejection.clientId, "mono"],
      ["Redirect URI", rejection.redirectUri, "mono"],
      ["Resource", rejection.resource, "mono"],
      ["Request id", requestId, "mono"],
    ]),
    rejection.change ? el("p", { class: "note" }, `What to change: ${rejection.change}.`) : "",
    el("p", { class: "note" }, "deploy/troubleshooting.md says what to do about ", mono(reason), ". ",
      subject ? el("a", { href: `#logins?subject=${encodeURIComponent(subject)}` }, "Logins of this subject") : ""));
}

async function find(id) {
  if (!id) return [];
  // Anything else is no id, and a browser would read `..` as a step up in the path.
  if (!/^[\w-]+$/.test(id)) return empty("A request id has only letters, digits and hyphens.");
  try {
    return details(await call("GET", `/admin/v1/rejections/${encodeURIComponent(id)}`));
  } catch (error) {
    if (error.status !== 404) throw error;
    return empty(`${error.call}: 404. It is not among the newest rejections. `
      + "The gateway keeps admin.recent_rejections of them for each worker, until a restart; the access log has all.");
  }
}

async function list(query) {
  const asked = new URLSearchParams(FILTERS.filter(name => query.get(name)).map(name => [name, query.get(name)]));
  const { rejections } = await call("GET", `/admin/v1/rejections?${asked}`);
  if (!rejections.length) {
    return empty(asked.size ? "No kept rejection is like this. Clear a field and show again."
      : "No request was rejected since the start.");
  }
  const shown = table("Last rejections", [
    ["When", ({ time }) => when(time)],
    ["Status", status],
    ["Reason", ({ reason }) => filterLink("reason", reason)],
    ["Request", ({ method, host, path }) => mono(`${method} ${host ?? ""}${path}`), "long"],
    ["Client", ({ client }) => filterLink("client", client) ?? ""],
    ["Subject", ({ subject }) => filterLink("subject", subject) ?? "", "long"],
    ["Request id", ({ requestId: id }) => el("a", { class: "mono", href: `#why/${encodeURIComponent(id)}` }, id)],
  ], rejections);
  return [shown, el("p", { class: "note" }, rejections.length < 50 ? "" : "The newest 50. A filter finds older ones.")];
}

const DECISIONS = { allowed: "green", local: "green", observed: "amber", rejected: "red", unknown: "amber" };

function explanation({ decision, steps, reason, status, detail, change }) {
  const step = ({ step, found }) => el("li", {}, el("b", {}, step), " ", found ?? "");
  return el("div", { class: "result" },
    el("h3", {}, badge(decision, DECISIONS[decision]), " ", status ? `${status} ` : "", reason ? mono(reason) : ""),
    detail ? el("p", {}, detail) : "",
    change ? el("p", { class: "note" }, `What to change: ${change}.`) : "",
    el("ol", { class: "steps" }, ...steps.map(step),
      reason ? el("li", { class: "red" }, el("b", {}, reason), " ", detail ?? "") : ""));
}

async function explain() {
  const value = name => byId(`explain-${name}`).value.trim();
  const asked = { method: value("method"), host: value("host"), path: value("path"), tokenIn: value("in"),
    client: value("client"), cleartext: byId("explain-cleartext").checked };
  for (const [name, text] of Object.entries(asked)) if (text === "") delete asked[name];
  if (value("token")) asked.token = value("token").replace(/^Bearer\s+/i, "");
  return explanation(await call("POST", "/admin/v1/explain", asked));
}

export async function enter(id, query) {
  for (const name of FILTERS) byId(`filter-${name}`).value = query.get(name) ?? "";
  byId("request-id").value = id;
  fillPlace(byId("rejections"), () => list(query));
  await fillPlace(byId("found"), () => find(id));
  if (id) (byId("found").querySelector("h3") ?? byId("request-id")).focus();
}

/** The token of an explanation stays no longer than the part is shown. */
export function leave() {
  byId("explain-token").value = "";
  show(byId("explained"));
}

export function clear() {
  leave();
  for (const id of ["found", "rejections"]) show(byId(id));
}

/** Goes to an address, also if it is the one that is shown. */
function go(hash, query) {
  if (location.hash === hash) enter(...query);
  else location.hash = hash;
}

byId("find").addEventListener("submit", event => {
  event.preventDefault();
  const id = byId("request-id").value.trim();
  go(`#why/${encodeURIComponent(id)}`, [id, new URLSearchParams()]);
});

byId("filter").addEventListener("submit", event => {
  event.preventDefault();
  const pairs = FILTERS.map(name => [name, byId(`filter-${name}`).value.trim()]).filter(([, value]) => value);
  const query = new URLSearchParams(pairs);
  go(`#why${query.size ? `?${query}` : ""}`, ["", query]);
});

byId("explain").addEventListener("submit", async event => {
  event.preventDefault();
  try {
    show(byId("explained"), await explain());
  } catch (error) {
    show(byId("explained"), failure(error));
  }
});
