// openid-client, for every OAuth server: a client that the operator has registered. SERVER: the URL of the resource.

import * as oauth from "openid-client";

import { callForEachLine, redirect } from "./callback.mjs";

const { SERVER, CLIENT_ID } = process.env;
const { uri, open } = await redirect();
const config = await oauth.discovery(new URL(new URL(SERVER).origin), CLIENT_ID, undefined, oauth.None());
let tokens;
let expires;
const keep = (granted) => {
  tokens = granted;
  expires = Date.now() + granted.expires_in * 1000;
};

const signIn = async () => {
  const verifier = oauth.randomPKCECodeVerifier();
  const state = oauth.randomState();
  const url = oauth.buildAuthorizationUrl(config, {
    redirect_uri: uri, scope: "mcp", resource: SERVER, state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: "S256",
  });
  return oauth.authorizationCodeGrant(config, await open(url), { pkceCodeVerifier: verifier, expectedState: state });
};
// The call after one that failed begins again.
const call = async () => {
  if (!tokens) keep(await signIn());
  else if (Date.now() > expires) keep(await oauth.refreshTokenGrant(config, tokens.refresh_token));
  const current = tokens;
  tokens = undefined;
  const response = await oauth.fetchProtectedResource(
    config, current.access_token, new URL(SERVER), "POST",
    JSON.stringify({
      jsonrpc: "2.0", id: 1, method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "tests", version: "1" } },
    }),
    new Headers({ "content-type": "application/json", accept: "application/json, text/event-stream" }),
  );
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  tokens = current;
};

await callForEachLine(call);
