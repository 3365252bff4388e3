// A browser without a window: it follows redirects, keeps cookies, and agrees on the consent page. It ends at the
// redirect URI of the client. As a program, it is what clients start to open a page (`xdg-open URL`).

import http from "node:http";
import https from "node:https";
import { pathToFileURL } from "node:url";

const jars = new Map();

const cookies = (origin) => [...(jars.get(origin) ?? new Map())].map(([name, value]) => `${name}=${value}`).join("; ");

const keep = (origin, fields) => {
  const jar = jars.get(origin) ?? new Map();
  for (const field of fields ?? []) {
    const [pair, ...attributes] = field.split(";");
    const [name, value] = [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)];
    const isGone = attributes.some((attribute) => attribute.trim() === "Max-Age=0");
    isGone ? jar.delete(name) : jar.set(name, value);
  }
  jars.set(origin, jar);
};

// The first form of a page, with the button that agrees.
const agreed = (html) => {
  const form = html.match(/<form[^]*?<\/form>/)?.[0];
  const button = form?.match(/<button[^>]*name="([^"]*)" value="(allow|approve)"/);
  if (!button) return undefined;
  const fields = [...form.matchAll(/<input[^>]*name="([^"]*)" value="([^"]*)"/g)].map(([, name, value]) => [name, value]);
  return { action: form.match(/action="([^"]*)"/)?.[1] ?? "", body: String(new URLSearchParams([...fields, button.slice(1)])) };
};

// Not `fetch`, which always says that no page is loaded.
const load = (url, { method = "GET", body = "", headers = {} }) => new Promise((resolve, reject) => {
  const { origin, protocol } = new URL(url);
  const page = { accept: "text/html", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  const all = { ...page, cookie: cookies(origin), "content-length": Buffer.byteLength(body), ...headers };
  const request = (protocol === "https:" ? https : http).request(url, { method, headers: all }, (response) => {
    keep(origin, response.headers["set-cookie"]);
    const parts = [];
    response.on("data", (part) => parts.push(part));
    response.on("error", reject);
    response.on("end", () => {
      const { statusCode: status, headers: { location } } = response;
      resolve({ status, location, html: Buffer.concat(parts).toString() });
    });
  });
  request.on("error", reject);
  request.end(body);
});

// Tells a test what is about to happen, and waits for it.
const tell = (moment) => process.env.MOMENTS && fetch(`${process.env.MOMENTS}/${moment}`);

/** Returns the URL at which `isEnd` holds, after the user has agreed. */
export const visit = async (start, isEnd) => {
  let [url, options] = [start, {}];
  for (let step = 0; step < 20; step += 1) {
    if (isEnd(url)) return url;
    const { status, location, html } = await load(url, options);
    if (location) {
      const next = new URL(location, url);
      if (next.origin === new URL(start).origin && next.origin !== new URL(url).origin) await tell("signed_in");
      [url, options] = [next.href, {}];
      continue;
    }
    const form = agreed(html);
    if (!form) throw new Error(`${status} at ${url}: ${html}`);
    await tell("consent");
    const headers = { origin: new URL(url).origin, "content-type": "application/x-www-form-urlencoded" };
    [url, options] = [new URL(form.action || url, url).href, { method: "POST", body: form.body, headers }];
  }
  throw new Error(`no end after 20 steps: ${url}`);
};

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const isCallback = (url) => new URL(url).pathname.endsWith("/callback") && new URL(url).searchParams.has("code");
  await tell("open");
  const end = await visit(process.argv[2], isCallback);
  await tell("callback");
  // Some clients open the page before they listen: a user takes longer than this browser.
  for (let attempts = 50; ; attempts -= 1) {
    try {
      await fetch(end);
      break;
    } catch (error) {
      if (!attempts) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
