// The part In force: each setting with its origin, and the limits that were hit.

import { call, mayChange } from "./api.js";
import { badge, byId, confirmed, el, empty, failure, fillPlace, mono, show, table } from "./dom.js";
import { limits } from "./now.js";

let settings = [];

const text = value => (value === undefined ? "not set" : Array.isArray(value) ? value.join(", ") : String(value));

function origin({ kind, file, line, name }) {
  if (kind === "default") return el("span", { class: "note" }, "default");
  const place = file ? `${file.split("/").pop()}:${line}` : "";
  return el("span", { class: "mono", title: file ? `${file}:${line}` : null },
    kind === "file" ? place : [kind, name, place && `(${place})`].filter(Boolean).join(" "));
}

function value({ value, pending }) {
  if (!pending) return mono(text(value));
  return [mono(text(value)), el("p", { class: "amber" }, "after a restart: ", mono(text(pending.value)), " ",
    pending.origin ? origin(pending.origin) : "")];
}

function draw() {
  const [wanted, withoutDefaults] = [byId("narrow-text").value.trim().toLowerCase(), byId("narrow-set").checked];
  const found = settings.filter(({ key, value, origin, pending }) =>
    (!wanted || `${key} ${text(value)}`.toLowerCase().includes(wanted))
    && (!withoutDefaults || wanted || origin.kind !== "default" || pending));
  const waiting = settings.filter(({ pending }) => pending).length;
  show(byId("narrow-count"), `${found.length} of ${settings.length} settings`,
    waiting ? el("span", {}, ". ", badge(`${waiting} take a restart`, "amber")) : "");
  show(byId("settings"), found.length ? table("Settings", [
    ["Key", ({ key }) => mono(key), "long"],
    ["Value", value, "long"],
    ["Origin", setting => origin(setting.origin)],
    ["Changes with", ({ reloadable }) => (reloadable ? "reload" : "restart")],
  ], found) : empty("No setting is like this."));
}

async function load() {
  const answer = await call("GET", "/admin/v1/config");
  settings = answer.settings;
  draw();
  return [...byId("settings").childNodes];
}

/** What differs between the file and what is in force. */
function differences({ changes }) {
  const name = ({ key, requiresRestart }) => `${key}${requiresRestart ? " (takes a restart)" : ""}`;
  if (!changes.length) return "The file has the values that are in force.";
  const rest = changes.length > 8 ? ` and ${changes.length - 8} more` : "";
  return `The file differs in ${changes.slice(0, 8).map(name).join(", ")}${rest}.`;
}

async function reload() {
  try {
    const text = differences(await call("POST", "/admin/v1/reload?dryRun=true"));
    if (!await confirmed({ title: "Reload the configuration?", text, typed: "reload", action: "Reload" })) return;
    const { changed, restartKeys, warnings = [] } = await call("POST", "/admin/v1/reload");
    show(byId("reloaded"), badge("reloaded", "green"),
      changed.length ? ` Changed: ${changed.join(", ")}.` : " Nothing changed.",
      restartKeys.length ? ` These take a restart: ${restartKeys.join(", ")}.` : "",
      ...(warnings.length ? [el("pre", { class: "box", tabindex: "0" }, warnings.join("\n"))] : []));
  } catch (error) {
    const report = error.body?.report;
    show(byId("reloaded"), failure(error), ...(report ? [el("pre", { class: "box", tabindex: "0" }, report)] : []));
  }
  fillPlace(byId("settings"), load);
}

export function enter(_, query) {
  const wanted = query.get("find");
  if (wanted !== null) byId("narrow-text").value = wanted;
  const button = el("button", { type: "button", onclick: reload }, "Reload");
  show(byId("reload-place"), ...(mayChange() ? [button] : []));
  show(byId("reloaded"));
  fillPlace(byId("settings"), load);
  fillPlace(byId("limits"), async () => limits((await call("GET", "/admin/v1/stats?seconds=1")).limitsHit));
}

export function clear() {
  settings = [];
  const places = ["reload-place", "reloaded", "limits", "settings", "narrow-count"];
  for (const id of places) show(byId(id));
}

byId("narrow").addEventListener("submit", event => event.preventDefault());
byId("narrow").addEventListener("input", draw);
