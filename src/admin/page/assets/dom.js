// Builds what the page shows. Texts become text nodes: nothing that a client sent can become markup.

export const byId = id => document.getElementById(id);

const HIDDEN =
  /(?!\n)[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800\u303F\uFFFC\u{13441}\u{13442}\u{16FE4}\u{1D159}]|(?![ \n])\s|\\(?=u\{)/gu;
const escaped = text => [...text].map(c => `\\u{${c.codePointAt(0).toString(16)}}`).join("");

/** Escapes characters without a shape, also those that change the order, and what looks like such an escape. */
const visible = text => String(text).replace(HIDDEN, escaped);

/** Also escapes spaces that a browser does not show: names that differ only there look different. */
const exactly = text => visible(text).replace(/^ +|(?<= ) +| +$|\n/g, escaped);

/** A name that a client or a provider chose. */
export const exact = text => document.createTextNode(exactly(text));

/** An element. `children` are elements and texts. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  const shown = children.filter(child => child !== undefined && child !== null && child !== "");
  element.append(...shown.map(child => child instanceof Node ? child : visible(child)));
  return element;
}

/** A copy of a template, with its texts. */
export function fill(id, texts) {
  const copy = byId(id).content.firstElementChild.cloneNode(true);
  for (const place of copy.querySelectorAll("[data-text]")) place.textContent = visible(texts[place.dataset.text] ?? "");
  return copy;
}

export function show(place, ...children) {
  place.replaceChildren(...children);
}

/** Says which call failed and with what status. */
export function failure(error, again) {
  const box = fill("failure", {
    call: error.call ?? "The page failed:",
    status: error.status ? `${error.status} ${error.code ?? ""}` : "",
    description: error.message,
    id: error.requestId ? `request id ${error.requestId}` : "",
  });
  const button = box.querySelector("[data-again]");
  if (again) button.addEventListener("click", again);
  else button.remove();
  return box;
}

/** Runs `load` and shows what it returns in `place`, or why it failed. A later run wins over an earlier one. */
const runs = new WeakMap();
export async function fillPlace(place, load) {
  const run = (runs.get(place) ?? 0) + 1;
  runs.set(place, run);
  let shown;
  try {
    shown = await load();
  } catch (error) {
    shown = failure(error, () => fillPlace(place, load));
  }
  if (runs.get(place) === run) show(place, ...[shown].flat());
}

/** A table. A column is `[title, cell, class]`; `cell` makes the content of a row's cell. */
export function table(caption, columns, rows) {
  const titles = columns.map(([title, , kind]) =>
    el("th", { role: "columnheader", scope: "col", class: kind === "number" && kind }, title));
  const cell = (row, [title, content, kind]) =>
    el("td", { role: "cell", "data-title": title, class: kind }, el("div", {}, ...[content(row)].flat()));
  const line = row => el("tr", { role: "row" }, ...columns.map(column => cell(row, column)));
  return el("table", { role: "table" },
    el("caption", { class: "hidden" }, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...titles)),
    el("tbody", { role: "rowgroup" }, ...rows.map(line)));
}

/** Rows of a name and a value. Those without a value are left out. */
export function facts(rows) {
  const list = el("dl", { class: "facts" });
  for (const [name, value, kind] of rows) {
    if (value === undefined || value === null || value === "") continue;
    list.append(el("dt", {}, name), el("dd", { class: kind }, value));
  }
  return list;
}

/** `tone`: red, amber, green, or none. */
export const badge = (text, tone = "") => el("span", { class: `badge ${tone}` }, text);

export const empty = (...text) => el("p", { class: "empty" }, ...text);

export const mono = text => el("span", { class: "mono" }, text);

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });

/** "3 minutes ago", "in 12 days". */
export function fromNow(seconds) {
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS[3];
  return relative.format(Math.trunc(seconds / size), unit);
}

/** A moment as a distance from now; its title is the moment itself. */
export function when(text) {
  if (!text) return "";
  const time = el("time", { datetime: text, title: text.replace("T", " ").replace("Z", " UTC") });
  tell(time);
  return time;
}

function tell(time) {
  time.textContent = fromNow((Date.parse(time.dateTime) - Date.now()) / 1000);
}

setInterval(() => document.querySelectorAll("time").forEach(tell), 5000);

export function number(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 1;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A duration in seconds. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  const digits = value => value.toLocaleString("en", { maximumSignificantDigits: value >= 100 ? 3 : 2 });
  if (seconds < 0.001) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 60) return seconds < 1 ? `${digits(seconds * 1000)} ms` : `${digits(seconds)} s`;
  const [unit, size] = UNITS.find(([, size]) => seconds >= size);
  const count = Math.trunc(seconds / size);
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

/** Asks before a change. With `typed`, the operator must type it. Returns true if the operator agrees. */
export function confirmed({ title, text, typed, action }) {
  const [dialog, field, yes] = ["confirm", "confirm-typed", "confirm-yes"].map(byId);
  const expected = exactly(typed ?? "");
  byId("confirm-title").textContent = visible(title);
  byId("confirm-text").textContent = visible(text);
  byId("confirm-expected").textContent = expected;
  byId("confirm-typing").hidden = typed === undefined;
  yes.textContent = action;
  field.value = "";
  const check = () => { yes.disabled = typed !== undefined && field.value !== expected; };
  check();
  field.oninput = check;
  byId("confirm-no").onclick = () => dialog.close("no");
  dialog.returnValue = "no";
  dialog.showModal();
  (typed === undefined ? byId("confirm-no") : field).focus();
  return new Promise(resolve => {
    // The event of a dialog that was closed just before may come while this one is open.
    dialog.onclose = () => { if (!dialog.open) resolve(dialog.returnValue === "yes"); };
  });
}
