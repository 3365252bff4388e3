// The part Certificates and listeners.

import { badge, byId, el, mono, table, when } from "./dom.js";
import { daysLeft, daysTone, drawResult, watch } from "./state.js";

function order({ nextOrder, failures }) {
  if (failures) return badge(`${failures} failed`, "red");
  return nextOrder ? badge("planned") : badge("in progress", "amber");
}

// The names for an ACME server, if there are any.
function acmeNames(address, names) {
  return names.length === 0 ? "" : table(`ACME names of ${address}`, [
    ["Name", ({ name }) => mono(name), "long"],
    ["Certificate", ({ issued }) => issued ? badge("issued") : badge("none", "red")],
    ["Order", order],
    ["Next order", ({ nextOrder }) => nextOrder ? when(nextOrder) : ""],
    ["Last error", ({ error }) => error ?? "", "long"],
  ], names);
}

function listener({ address, admin, tls, certificates, acme }) {
  const title = el("h2", {}, mono(address), " ", admin ? badge("admin") : "", " ", badge(tls ? "TLS" : "cleartext"));
  if (!tls) return el("section", { class: "card" }, title, el("p", { class: "note" }, "Cleartext: no certificates."));
  return el("section", { class: "card" }, title, table(`Certificates of ${address}`, [
    ["Names", ({ names }) => mono(names.join(", ")), "long"],
    ["State", ({ daysLeft: days }) => badge(daysLeft(days), daysTone(days))],
    ["Ends", ({ notAfter }) => when(notAfter)],
    ["Issuer", ({ issuer }) => issuer, "long"],
    ["File", ({ file }) => mono(file), "long"],
  ], certificates), acmeNames(address, acme));
}

export function enter() {
  watch("certificates", result => drawResult(byId("listeners"), result, ({ listeners }) => listeners.map(listener)));
}
