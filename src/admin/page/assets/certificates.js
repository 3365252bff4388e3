// The part Certificates and listeners.

import { badge, byId, el, mono, table, when } from "./dom.js";
import { daysLeft, daysTone, drawResult, watch } from "./state.js";

function listener({ address, admin, tls, certificates }) {
  const title = el("h2", {}, mono(address), " ", admin ? badge("admin") : "", " ", badge(tls ? "TLS" : "cleartext"));
  if (!tls) return el("section", { class: "card" }, title, el("p", { class: "note" }, "Cleartext: no certificates."));
  return el("section", { class: "card" }, title, table(`Certificates of ${address}`, [
    ["Names", ({ names }) => mono(names.join(", ")), "long"],
    ["State", ({ daysLeft: days }) => badge(daysLeft(days), daysTone(days))],
    ["Ends", ({ notAfter }) => when(notAfter)],
    ["Issuer", ({ issuer }) => issuer, "long"],
    ["File", ({ file }) => mono(file), "long"],
  ], certificates));
}

export function enter() {
  watch("certificates", result => drawResult(byId("listeners"), result, ({ listeners }) => listeners.map(listener)));
}
