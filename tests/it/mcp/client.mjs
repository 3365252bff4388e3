// Runs the OAuth part of a client library of MCP: discovery, registration, a grant, a call, a refresh, a call. Prints
// what came of each. `settings` on standard input: `library`, `server` (the URL of the MCP server), `redirect`, and
// `client`, the client id of a registered client, and `state`.

import { readFileSync } from "node:fs";

import { visit } from "./visit.mjs";

const settings = JSON.parse(readFileSync(0, "utf8"));
const { auth } = await import(settings.library);

const kept = {};
const asked = [];
const provider = {
  redirectUrl: settings.redirect,
  clientMetadata: { client_name: "A client", redirect_uris: [settings.redirect], token_endpoint_auth_method: "none" },
  state: () => settings.state ?? "of-the-client",
  clientInformation: () => kept.client ?? (settings.client && { client_id: settings.client }),
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  redirectToAuthorization: (url) => { kept.url = url.href; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => { kept.discovery = state; },
  discoveryState: () => kept.discovery,
};
const fetchFn = async (url, options) => {
  const response = await fetch(url, options);
  asked.push(`${options?.method ?? "GET"} ${new URL(url).pathname} ${response.status}`);
  return response;
};
const call = async () => {
  const headers = kept.tokens && { authorization: `Bearer ${kept.tokens.access_token}` };
  const response = await fetch(settings.server, { method: "POST", headers, body: "{}" });
  return { status: response.status, challenge: response.headers.get("www-authenticate") };
};

const before = await call();
const resourceMetadataUrl = new URL(before.challenge.match(/resource_metadata="([^"]+)"/)[1]);
const scope = before.challenge.match(/scope="([^"]+)"/)?.[1];
const options = { serverUrl: settings.server, resourceMetadataUrl, scope, fetchFn };
const steps = [await auth(provider, options)];
const end = await visit(kept.url, (url) => url.startsWith(settings.redirect));
const answer = new URL(end).searchParams;
steps.push(await auth(provider, { ...options, authorizationCode: answer.get("code"), iss: answer.get("iss") }));
const first = kept.tokens;
const granted = (await call()).status;
steps.push(await auth(provider, options));
const refreshed = (await call()).status;
const isNew = kept.tokens.refresh_token !== first.refresh_token;
// What no log may have.
const secrets = [answer.get("code"), answer.get("state"), kept.verifier, first.access_token, first.refresh_token];
const found = { before, steps, granted, refreshed, isNew, asked, scope: first.scope, url: kept.url, secrets };
console.log(JSON.stringify(found));
