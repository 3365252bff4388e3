// The part Now: numbers of each second, five minutes of them as plots.

import { call, stream } from "./api.js";
import { badge, byId, duration, el, empty, failure, fill, number, show, table } from "./dom.js";

const KEPT = 300;
/** Rates are means over this many seconds, so that they can be read. */
const MEAN = 10;
const MEANS = `mean of ${MEAN} s`;
const SVG = "http://www.w3.org/2000/svg";

const requests = name => second => second.requests[name] / second.interval;
const total = second => Object.values(second.requests).reduce((sum, count) => sum + count, 0) / second.interval;
const rejected = second => Object.values(second.rejections).reduce((sum, count) => sum + count, 0) / second.interval;

const PLOTS = [
  { title: "Requests per second", unit: number, mean: 5, lines: [
    ["2xx", requests("2xx"), "green"], ["3xx", requests("3xx"), "blue"], ["4xx", requests("4xx"), "amber"],
    ["5xx", requests("5xx"), "red"], ["client closed", requests("clientClosed"), "grey"]] },
  { title: "Latency", unit: duration, lines: [
    ["p50", second => second.p50Seconds, "blue"], ["p99", second => second.p99Seconds, "amber"]] },
  { title: "Rejections per second", unit: number, mean: 5, lines: [["all reasons", rejected, "red"]] },
];

/** What came from the gateway, the newest second first, and what is shown of it: less while the page pauses. */
let received = { seconds: [], limitsHit: {} };
let { seconds, limitsHit } = received;
let opened = null;
let paused = false;
const plots = PLOTS.map(plot);

function plot(settings) {
  const figure = fill("plot", { title: settings.title });
  const [svg, cursor] = [figure.querySelector("svg"), figure.querySelector(".cursor")];
  const [most, at] = ["most", "at"].map(name => figure.querySelector(`[data-text=${name}]`));
  const lines = settings.lines.map(([name, value, color]) => {
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("class", `line ${color}`);
    cursor.before(line);
    const shown = el("b");
    figure.querySelector(".legend").append(el("li", {}, el("i", { class: color }), `${name} `, shown));
    return { name, value, line, shown };
  });
  let pointed = null;
  const draw = () => {
    if (!seconds.length) return;
    const values = lines.map(({ value }) => smooth(seconds.map(value), settings.mean));
    const highest = Math.max(...values.flat().filter(Number.isFinite), 0);
    const limit = nice(highest);
    most.textContent = highest ? settings.unit(limit) : "";
    const chosen = pointed === null ? null : seconds[pointed];
    at.textContent = chosen ? new Date(chosen.time).toLocaleTimeString() : "";
    cursor.setAttribute("visibility", chosen ? "visible" : "hidden");
    if (chosen) for (const end of ["x1", "x2"]) cursor.setAttribute(end, KEPT - pointed);
    const texts = lines.map(({ name, line, shown }, place) => {
      line.setAttribute("d", path(values[place], limit));
      shown.textContent = settings.unit(values[place][chosen ? pointed : 0]);
      return `${name} ${shown.textContent}`;
    });
    svg.setAttribute("aria-label", `${settings.title}, last 5 minutes; now ${texts.join(", ")}`);
  };
  svg.addEventListener("pointermove", event => {
    const { left, width } = svg.getBoundingClientRect();
    pointed = Math.max(0, Math.round(KEPT - (event.clientX - left) / width * KEPT));
    draw();
  });
  svg.addEventListener("pointerleave", () => { pointed = null; draw(); });
  return { figure, draw };
}

/** Means over some seconds, so that a line can be read at low rates. */
function smooth(values, count = 1) {
  if (count === 1) return values;
  return values.map((_, age) => {
    const last = values.slice(age, age + count);
    return last.reduce((sum, value) => sum + value, 0) / last.length;
  });
}

/** A line with a gap where there is no value. */
function path(heights, limit) {
  let text = "", joined = false;
  heights.forEach((height, age) => {
    if (Number.isFinite(height)) {
      const point = `${KEPT - age} ${(100 - 100 * height / limit).toFixed(1)}`;
      // A single value is drawn as a dot.
      text += joined ? `L${point}` : `M${point}h.01`;
    }
    joined = Number.isFinite(height);
  });
  return text;
}

/** The next 1, 2 or 5 with zeros. */
function nice(most) {
  if (!most) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].find(step => step * power >= most) * power;
}

function mean(value) {
  const last = seconds.slice(0, MEAN).map(value);
  return last.reduce((sum, value) => sum + value, 0) / Math.max(last.length, 1);
}

function tiles() {
  const last = seconds[0];
  const busy = seconds.slice(0, MEAN).find(second => second.p99Seconds !== undefined);
  const servers = Object.values(last.servers).reduce((sum, count) => sum + count, 0);
  const out = servers - last.servers.in - last.servers.returning;
  const failed = mean(requests("5xx"));
  const hits = Object.values(limitsHit).reduce((sum, count) => sum + count, 0);
  const lost = seconds.reduce((sum, second) => sum + second.logLinesDropped, 0);
  return [
    ["Requests/s", number(mean(total)), MEANS],
    ["Rejected/s", number(mean(rejected)), MEANS],
    ["5xx/s", number(failed), MEANS, failed > 0 && "red"],
    ["p50", duration(busy?.p50Seconds), busy ? "latest second" : "no requests"],
    ["p99", duration(busy?.p99Seconds), busy ? "latest second" : "no requests"],
    ["In flight", number(last.requestsInFlight), "requests"],
    ["Open streams", number(last.openStreams), "WebSocket, SSE …"],
    ["Connections", number(last.openConnections), "of clients"],
    ["Tokens known", number(last.tokensKnown), "in the cache"],
    ["Servers in", `${last.servers.in} of ${servers}`, out ? `${out} out` : "of all upstreams", out > 0 && "red"],
    ["Limits hit", number(hits), "last hour", hits > 0 && "amber"],
    ["Log lines lost", number(lost), "last 5 minutes", lost > 0 && "red"],
  ];
}

/** Why 401 has the rejections of clients, not those of operators. */
function reasonLink([reason]) {
  if (reason.startsWith("admin_")) return [el("span", { class: "mono" }, reason), " ", "of operators"];
  return el("a", { class: "mono", href: `#why?reason=${encodeURIComponent(reason)}` }, reason);
}

function reasons() {
  const counts = {};
  for (const second of seconds) {
    for (const [reason, count] of Object.entries(second.rejections)) counts[reason] = (counts[reason] ?? 0) + count;
  }
  const rows = Object.entries(counts).sort(([, one], [, other]) => other - one).slice(0, 10);
  if (!rows.length) return empty("Nothing was rejected.");
  const most = rows[0][1];
  return table("Rejections by reason", [
    ["Reason", reasonLink],
    ["Count", ([, count]) => number(count), "number"],
    ["Part", ([, count]) => el("meter", { max: most, value: count, "aria-label": `${count} of ${most}` })],
  ], rows);
}

/** The limits that were hit in the last hour. */
export function limits(hit) {
  const rows = Object.entries(hit).sort(([, one], [, other]) => other - one);
  if (!rows.length) return empty("No limit was hit.");
  return table("Limits hit in the last hour", [
    ["Key", ([key]) => el("a", { class: "mono", href: `#configuration?find=${encodeURIComponent(key)}` }, key)],
    ["Hits", ([, count]) => number(count), "number"],
  ], rows);
}

let drawn = {};
/** Replaces a place only if it shows something else, so that focus in it stays. */
function update(id, data, make) {
  const key = JSON.stringify(data);
  if (drawn[id] === key) return;
  drawn[id] = key;
  const focused = byId(id).contains(document.activeElement) ? document.activeElement.hash : null;
  show(byId(id), make());
  if (focused) [...byId(id).querySelectorAll("a")].find(link => link.hash === focused)?.focus();
}

function draw() {
  if (!seconds.length) return show(byId("tiles"), empty("The first second has not passed yet."));
  const tile = ([name, value, note, tone]) => el("div", { class: `tile ${tone || ""}` },
    el("dt", {}, name), el("dd", {}, value), el("dd", { class: "note" }, note));
  show(byId("tiles"), ...tiles().map(tile));
  for (const plot of plots) plot.draw();
  update("reasons", seconds.map(second => second.rejections).filter(by => Object.keys(by).length), reasons);
  update("hit", limitsHit, () => limits(limitsHit));
}

function take(stats) {
  received = { seconds: [...stats.seconds, ...received.seconds].slice(0, KEPT), limitsHit: stats.limitsHit };
  if (!paused) drawReceived();
}

function drawReceived() {
  ({ seconds, limitsHit } = received);
  draw();
}

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

function tell(text, tone) {
  show(byId("live"), badge(text, tone));
}

/** Reads the past once, and then each second as it comes. Begins again when the stream ends. */
async function follow(signal) {
  for (let wait = 1; !signal.aborted; wait = Math.min(wait * 2, 10)) {
    try {
      received = { seconds: [], limitsHit: {} };
      take(await call("GET", `/admin/v1/stats?seconds=${KEPT}`, undefined, signal));
      tell("live", "green");
      let isFirst = true;
      await stream("/admin/v1/stats/stream", stats => {
        // The first event comes at once, and mostly has the second that is known already.
        if (!isFirst || stats.seconds[0]?.time !== received.seconds[0]?.time) take(stats);
        [isFirst, wait] = [false, 1];
      }, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!received.seconds.length) show(byId("tiles"), failure(error, () => enter()));
      tell(error.status === 429 ? "every 10 s: too many streams are open" : "connecting", "amber");
    }
    if (!signal.aborted) await pause(wait * 1000);
  }
}

export function enter() {
  leave();
  if (!byId("plots").hasChildNodes()) show(byId("plots"), ...plots.map(({ figure }) => figure));
  opened = new AbortController();
  follow(opened.signal);
}

export function leave() {
  opened?.abort();
  opened = null;
}

export function clear() {
  received = { seconds: [], limitsHit: {} };
  ({ seconds, limitsHit } = received);
  drawn = {};
  if (paused) byId("pause").click();
  for (const id of ["tiles", "plots", "reasons", "hit"]) show(byId(id));
}

byId("pause").addEventListener("click", ({ target }) => {
  paused = !paused;
  target.setAttribute("aria-pressed", paused);
  target.textContent = paused ? "Continue" : "Pause";
  if (!paused) drawReceived();
});

// A tab that is not seen needs no stream.
document.addEventListener("visibilitychange", () => {
  if (opened && document.hidden) opened.abort();
  else if (opened?.signal.aborted) enter();
});
