// oauth4webapi, each step by itself: a client that the operator has registered. SERVER: the URL of the resource.

import * as oauth from "oauth4webapi";

import { callWithTokens, redirect } from "./callback.mjs";

const { SERVER, CLIENT_ID } = process.env;
const { uri, open } = await redirect();
const issuer = new URL(new URL(SERVER).origin);
const discovered = await oauth.discoveryRequest(issuer, { algorithm: "oauth2" });
const server = await oauth.processDiscoveryResponse(issuer, discovered);
const client = { client_id: CLIENT_ID };

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
const refresh = async (token) => {
  const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), token);
  return oauth.processRefreshTokenResponse(server, client, response);
};
const send = (token, body, headers) => oauth.protectedResourceRequest(token, "POST", new URL(SERVER), headers, body);

await callWithTokens({ signIn, refresh, send });
