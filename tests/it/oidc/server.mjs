// A real OpenID provider, https://github.com/panva/node-oidc-provider. Reads a line of JSON from standard input, and
// writes one with its addresses. Ends with its standard input. `tests/it/support/oidc_provider.rs` starts it.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createInterface } from "node:readline";

import { control } from "./control.mjs";
import { Site } from "./site.mjs";

const lines = createInterface({ input: process.stdin });
const settings = JSON.parse(await new Promise((resolve) => lines.once("line", resolve)));
lines.on("close", () => process.exit());

let site;
const listener = (request, response) => site.answer(request, response);
const { tls } = settings;
const server = tls
  ? createTlsServer(
      {
        cert: readFileSync(tls.cert),
        key: readFileSync(tls.key),
        // For clients that authenticate with a certificate.
        ...(tls.client_ca && { ca: readFileSync(tls.client_ca), requestCert: true, rejectUnauthorized: false }),
      },
      listener,
    )
  : createServer(listener);
const listening = (server) =>
  new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));

const port = await listening(server);
site = new Site(settings.issuer ?? (tls ? `https://localhost:${port}` : `http://127.0.0.1:${port}`), settings);
const controls = await listening(createServer(control(site)));
// oidc-provider writes its notices there.
console.info = console.error;
console.log(JSON.stringify({ issuer: site.issuer, port, control: controls }));
