// Runs `openid-client`: discovery, a request of a user, a grant, a call, a refresh, a call, a revocation. Prints what
// came of each. `settings` on standard input: `issuer`, `client`, `redirect`, `resource`, `scope`, `pushes` (RFC 9126)
// and `proves` (RFC 9449).

import { readFileSync } from "node:fs";

import * as client from "openid-client";

import { visit } from "../visit.mjs";

const settings = JSON.parse(readFileSync(0, "utf8"));
const config = await client.discovery(new URL(settings.issuer), settings.client, undefined, client.None());
const DPoP = settings.proves ? client.getDPoPHandle(config, await client.randomDPoPKeyPair("ES256")) : undefined;
const verifier = client.randomPKCECodeVerifier();
const expectedState = client.randomState();
const parameters = {
  redirect_uri: settings.redirect,
  scope: settings.scope,
  resource: settings.resource,
  state: expectedState,
  code_challenge: await client.calculatePKCECodeChallenge(verifier),
  code_challenge_method: "S256",
  ...(DPoP && { dpop_jkt: await DPoP.calculateThumbprint() }),
};
const url = settings.pushes
  ? await client.buildAuthorizationUrlWithPAR(config, parameters, { DPoP })
  : client.buildAuthorizationUrl(config, parameters);
const end = await visit(url.href, (at) => at.startsWith(settings.redirect));
const checks = { pkceCodeVerifier: verifier, expectedState };
const first = await client.authorizationCodeGrant(config, new URL(end), checks, undefined, { DPoP });
const call = async (tokens) => {
  const target = new URL(settings.resource);
  const { access_token: token } = tokens;
  const response = await client.fetchProtectedResource(config, token, target, "GET", null, undefined, { DPoP });
  return response.status;
};
const granted = await call(first);
const second = await client.refreshTokenGrant(config, first.refresh_token, undefined, { DPoP });
const refreshed = await call(second);
await client.tokenRevocation(config, second.refresh_token);
// The library throws where the server challenges it.
const revoked = await call(second).catch((error) => error.status ?? error.cause?.status ?? error.response?.status);
console.log(JSON.stringify({
  url: url.href, type: first.token_type, scope: first.scope, granted, refreshed, revoked,
}));
