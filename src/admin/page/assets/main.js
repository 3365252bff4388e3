// Signing in and out, and which part is shown. The address of a part is `#part/id?name=value`.

import * as api from "./api.js";
import * as apikeys from "./apikeys.js";
import * as certificates from "./certificates.js";
import * as configuration from "./configuration.js";
import { byId } from "./dom.js";
import * as keys from "./keys.js";
import * as logins from "./logins.js";
import * as now from "./now.js";
import * as state from "./state.js";
import * as why from "./why.js";

const parts = { now, why, logins, apikeys, keys, certificates, upstreams: state.upstreams, configuration };
let shown = null;

function route() {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...id] = path.split("/");
  const known = Object.hasOwn(parts, name) ? name : "now";
  return { name: known, id: decode(id.join("/")), query: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function showPart(moveFocus) {
  const { name, id, query } = route();
  if (shown !== name) {
    parts[shown]?.leave?.();
    shown = name;
  }
  for (const part of document.querySelectorAll("[data-part]")) part.hidden = part.dataset.part !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = byId(`${name}-title`);
  document.title = `${title.textContent} · bearward`;
  if (moveFocus) {
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  parts[name].enter(id, query);
}

function showSignIn(message) {
  parts[shown]?.leave?.();
  shown = null;
  state.stop();
  for (const part of Object.values(parts)) part.clear?.();
  byId("confirm").close();
  for (const id of ["confirm-title", "confirm-text", "confirm-expected"]) byId(id).textContent = "";
  byId("app").hidden = true;
  byId("sign-in").hidden = false;
  document.title = "Sign in · bearward";
  tellSignIn(message);
  byId("try-again").hidden = true;
  byId(message ? "token" : "sign-in-title").focus();
}

function tellSignIn(message = "") {
  byId("sign-in-error").hidden = !message;
  byId("sign-in-error").textContent = message;
}

function showApp() {
  const { operator, role, expiresAt } = api.current();
  byId("host").textContent = location.host;
  byId("operator").textContent = `${operator} · ${role === "view" ? "view only" : role}`;
  byId("operator").title = expiresAt ? `The session ends at ${expiresAt}` : "";
  byId("sign-in").hidden = true;
  byId("app").hidden = false;
  state.start();
  showPart(true);
}

const PROBLEMS = {
  401: "This token is wrong.",
  404: "This gateway has no such call: its release and that of the page differ.",
  429: "Too many wrong tokens came from your address. Wait a minute.",
};

const problem = error =>
  `${PROBLEMS[error.status] ?? error.message}${error.status ? ` (${error.call}: ${error.status})` : ""}`;

byId("sign-in-form").addEventListener("submit", async event => {
  event.preventDefault();
  const field = byId("token");
  try {
    await api.signIn(field.value.trim());
    tellSignIn();
    showApp();
  } catch (error) {
    tellSignIn(problem(error));
    field.focus();
  }
  field.value = "";
});

byId("sign-out").addEventListener("click", () => {
  api.signOut();
  showSignIn();
});

byId("skip").addEventListener("click", event => {
  event.preventDefault();
  byId("content").focus();
});

addEventListener("hashchange", () => {
  if (api.current()) showPart(true);
});

api.whenEnded(() => showSignIn("Your session has ended. Sign in again."));

/** Goes on with the session of this tab, if it has one. */
async function resume() {
  try {
    if (await api.resume()) showApp();
    else if (byId("sign-in").hidden) showSignIn();
  } catch (error) {
    showSignIn(problem(error));
    byId("try-again").hidden = false;
  }
}

byId("try-again").addEventListener("click", resume);
resume();
