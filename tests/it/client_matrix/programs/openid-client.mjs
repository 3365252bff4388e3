// openid-client, for every OAuth server: a client that the operator has registered. SERVER: the URL of the resource.

import * as oauth from "openid-client";

import { callWithTokens, redirect } from "./callback.mjs";

const { SERVER, CLIENT_ID } = process.env;
const { uri, open } = await redirect();
const config = await oauth.discovery(new URL(new URL(SERVER).origin), CLIENT_ID, undefined, oauth.None());

const signIn = async () => {
  const verifier = oauth.randomPKCECodeVerifier();
  const state = oauth.randomState();
  const url = oauth.buildAuthorizationUrl(config, {
    redirect_uri: uri, scope: "mcp", resource: SERVER, state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: "S256",
  });
  return oauth.authorizationCodeGrant(config, await open(url), { pkceCodeVerifier: verifier, expectedState: state });
};
const refresh = (token) => oauth.refreshTokenGrant(config, token);
const send = (token, body, headers) => oauth.fetchProtectedResource(config, token, new URL(SERVER), "POST", body, headers);

await callWithTokens({ signIn, refresh, send });
