// What library clients in Node share: the page to which the browser brings the code, and the calls of the tests.

import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

/** A redirect URI on a port of its own. `open` opens a page, and returns the URL at which the browser came back. */
export const redirect = async () => {
  let arrived;
  const server = createServer((request, response) => {
    response.end("You can close this page.");
    arrived?.(new URL(request.url, `http://127.0.0.1:${server.address().port}`));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const open = (url) => new Promise((resolve, reject) => {
    arrived = resolve;
    execFile("xdg-open", [String(url)], (error) => { if (error) reject(error); });
  });
  return { uri: `http://127.0.0.1:${server.address().port}/callback`, open };
};

/** Calls now, and again for each line of standard input. Prints a line for each call. */
export const callForEachLine = async (call) => {
  const once = async () => {
    try {
      await call();
      console.log("called");
    } catch (error) {
      console.log(`failed: ${error.stack}${error.cause ? ` because of ${error.cause.stack}` : ""}`.replaceAll("\n", " "));
    }
  };
  await once();
  for await (const _ of createInterface({ input: process.stdin })) await once();
  process.exit();
};

/** What a library of OAuth sends that knows nothing of MCP. */
const INITIALIZE = JSON.stringify({
  jsonrpc: "2.0", id: 1, method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "tests", version: "1" } },
});

/** A call for each line by such a library: `signIn` and `refresh` give tokens, and `send` sends a POST request with an
 * access token, a body and headers. The call after one that failed begins again. */
export const callWithTokens = async ({ signIn, refresh, send }) => {
  let kept;
  const begin = (tokens) => ({ tokens, expires: Date.now() + tokens.expires_in * 1000 });
  const current = async (before) => {
    if (!before) return begin(await signIn());
    return Date.now() > before.expires ? begin(await refresh(before.tokens.refresh_token)) : before;
  };
  await callForEachLine(async () => {
    const before = kept;
    kept = undefined;
    const session = await current(before);
    const headers = new Headers({ "content-type": "application/json", accept: "application/json, text/event-stream" });
    const response = await send(session.tokens.access_token, INITIALIZE, headers);
    if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
    kept = session;
  });
};
