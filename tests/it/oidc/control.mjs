// What tests ask of the provider, on another port. Each call is a POST with JSON, and returns JSON:
//
//   /log       {}                                    what happened: [{what: "token", method, params, status}, …]
//   /clients   client metadata                       adds a client, or replaces it
//   /account   {account}                             who signs in without a page; null: the page asks
//   /accounts  {name, claims}                        adds an account, or replaces its claims
//   /faults    [{path, status, headers, body, delay_ms, drop, times}]   what requests of these paths get;
//                                                    drop: the provider does its part, and the response is lost
//   /rotate    {keep}                                signs with a new key; keep: also publishes the earlier ones
//   /published {}                                    the key set
//   /tokens    {account, client_id, scope, resource, ttl}   {access_token, refresh_token}, signed in or not
//   /revoke    {token}                               an access or refresh token ends, without a word to its client
//   /end       {account}                             an administrator ends all sessions of an account: its clients are
//                                                    told by back-channel logout, and its grants end

export const control = (site) => async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  try {
    const call = calls[request.url];
    if (!call) throw new Error(`no call ${request.url}`);
    const result = await call(site, JSON.parse(Buffer.concat(parts).toString() || "{}"));
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(result ?? {}));
  } catch (error) {
    console.error(request.url, error);
    response.writeHead(500).end();
  }
};

const calls = {
  "/log": (site) => site.log,
  "/clients": (site, client) => site.addClient(client),
  "/account": (site, { account }) => void (site.account = account ?? undefined),
  "/accounts": (site, { name, claims }) => void (site.accounts[name] = claims),
  "/faults": (site, faults) => void (site.faults = faults),
  "/rotate": (site, how) => site.rotate(how),
  "/published": (site) => ({ keys: site.keys.map(({ kty, n, e, use, kid }) => ({ kty, n, e, use, kid })) }),
  "/tokens": issue,
  "/revoke": revoke,
  "/end": end,
};

async function issue({ provider, settings }, { account, client_id, scope, resource, ttl }) {
  const client = await provider.Client.find(client_id);
  const grant = new provider.Grant({ accountId: account, clientId: client_id });
  grant.addOIDCScope(`openid offline_access ${scope ?? ""}`);
  if (resource) grant.addResourceScope(resource, settings.resources[resource].scope);
  const grantId = await grant.save();
  const shared = { accountId: account, client, grantId, gty: "authorization_code", scope, expiresIn: ttl };
  const access = new provider.AccessToken(shared);
  if (resource) access.resourceServer = new provider.ResourceServer(resource, settings.resources[resource]);
  const refresh = new provider.RefreshToken({ ...shared, rotations: 0, resource });
  return { access_token: await access.save(), refresh_token: await refresh.save() };
}

async function revoke({ provider }, { token }) {
  const found = (await provider.AccessToken.find(token)) ?? (await provider.RefreshToken.find(token));
  await found.destroy();
}

async function end(site, { account }) {
  const { provider, store } = site;
  for (const { jti } of store.values("Session").filter((session) => session.accountId === account)) {
    const session = await provider.Session.find(jti);
    const told = Object.keys(session.authorizations ?? {}).map(async (id) => {
      const client = await provider.Client.find(id);
      const sid = session.sidFor(id);
      if (client.backchannelLogoutUri) {
        const told = client.backchannelLogout(account, sid);
        const result = await told.then(() => "ok", (error) => String(error.cause ?? error));
        site.note("backchannel", { client: id, sub: account, sid, result });
      }
      store.revoke(session.grantIdFor(id));
    });
    await Promise.all(told);
    await session.destroy();
  }
}
