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
