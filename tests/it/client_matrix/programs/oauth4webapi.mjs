// oauth4webapi, each step by itself: a client that the operator has registered. SERVER: the URL of the resource.

import * as oauth from "oauth4webapi";

import { callForEachLine, redirect } from "./callback.mjs";

const { SERVER, CLIENT_ID } = process.env;
const { uri, open } = await redirect();
const issuer = new URL(new URL(SERVER).origin);
const discovered = await oauth.discoveryRequest(issuer, { algorithm: "oauth2" });
const server = await oauth.processDiscoveryResponse(issuer, discovered);
const client = { client_id: CLIENT_ID };
let tokens;
let expires;
const keep = (granted) => {
  tokens = granted;
  expires = Date.now() + granted.expires_in * 1000;
};

const signIn = async () => {
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const url = new URL(server.authorization_endpoint);
  url.search = new URLSearchParams({
    response_type: "code", client_id: CLIENT_ID, redirect_uri: uri, scope: "mcp", resource: SERVER, state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: "S256",
  });
  const answer = oauth.validateAuthResponse(server, client, await open(url), state);
  const response = await oauth.authorizationCodeGrantRequest(server, client, oauth.None(), answer, uri, verifier);
  return oauth.processAuthorizationCodeResponse(server, client, response);
};
const refresh = async () => {
  const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), tokens.refresh_token);
  return oauth.processRefreshTokenResponse(server, client, response);
};
// The call after one that failed begins again.
const call = async () => {
  if (!tokens) keep(await signIn());
  else if (Date.now() > expires) keep(await refresh());
  const current = tokens;
  tokens = undefined;
  const response = await oauth.protectedResourceRequest(
    current.access_token, "POST", new URL(SERVER),
    new Headers({ "content-type": "application/json", accept: "application/json, text/event-stream" }),
    JSON.stringify({
      jsonrpc: "2.0", id: 1, method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "tests", version: "1" } },
    }),
  );
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  tokens = current;
};

await callForEachLine(call);
