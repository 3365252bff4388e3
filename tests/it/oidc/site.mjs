// The provider with what a test can ask of it: accounts, faults of its endpoints, new keys, and a log.

import { X509Certificate, generateKeyPairSync, randomUUID } from "node:crypto";

import Provider from "oidc-provider";

import { interaction } from "./interaction.mjs";
import { Store } from "./store.mjs";

const key = () => ({
  ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }),
  use: "sig",
  kid: randomUUID(),
});

export class Site {
  store = new Store();
  /** Calls of endpoints and of clients, oldest first. */
  log = [];
  /** `{path, status, delay_ms, drop, times}`: what requests of a path get. See control.mjs. */
  faults = [];
  keys = [key()];

  constructor(issuer, settings) {
    this.issuer = issuer;
    this.settings = settings;
    /** Sign-in without a page: this account. */
    this.account = settings.account;
    this.accounts = settings.accounts ?? {};
    (settings.clients ?? []).forEach((client) => this.addClient(client));
    this.start();
  }

  /** Adds a client, or replaces it. */
  addClient(client) {
    this.store.of("Client").set(client.client_id, client);
  }

  /** Makes the provider with the current keys. The first one signs. */
  start() {
    const provider = new Provider(this.issuer, this.configuration());
    provider.proxy = Boolean(this.settings.proxy);
    provider.use(async (ctx, next) => {
      await next();
      const { oidc, method, query, status, body } = ctx;
      if (oidc) this.note(oidc.route, { method, params: oidc.body ?? query, status, body });
    });
    const events = ["grant.error", "grant.revoked", "server_error", "authorization.error", "backchannel.error"];
    for (const event of events) {
      provider.on(event, (...parts) => {
        const error = parts.find((part) => part instanceof Error);
        this.note(event, { error: error && `${error.message}: ${error.error_detail ?? error.cause ?? ""}` });
      });
    }
    provider.on("backchannel.success", (_ctx, client, sub, sid) => {
      this.note("backchannel.success", { client: client.clientId, sub, sid });
    });
    this.provider = provider;
    this.callback = provider.callback();
  }

  note(what, more) {
    this.log.push({ what, ...JSON.parse(JSON.stringify(more)) });
  }

  /** Signs with a new key from now on. */
  rotate({ keep = true }) {
    this.keys = [key(), ...(keep ? this.keys : [])];
    this.start();
  }

  async answer(request, response) {
    const { pathname } = new URL(request.url, this.issuer);
    const fault = this.faults.find((fault) => fault.path === pathname && fault.times !== 0);
    if (fault) {
      if (fault.times) fault.times -= 1;
      this.note("fault", { path: pathname });
      if (fault.delay_ms) await new Promise((resolve) => setTimeout(resolve, fault.delay_ms));
      if (fault.status) return response.writeHead(fault.status, fault.headers ?? {}).end(fault.body ?? "");
      // The provider does its part, and the client never learns of it.
      if (fault.drop) response.writeHead = response.write = response.end = () => request.socket.destroy();
    }
    if (await interaction(this, pathname, request, response)) return;
    this.callback(request, response);
  }

  configuration() {
    const { settings } = this;
    const resource = (_ctx, indicator) => {
      const found = (settings.resources ?? {})[indicator];
      if (!found) throw new Provider.errors.InvalidTarget();
      return found;
    };
    return {
      adapter: this.store.adapter,
      jwks: { keys: this.keys },
      // Its own call refuses addresses of this machine, which it checks by a dispatcher.
      fetch: (url, { dispatcher: _, ...options }) => fetch(url, options),
      findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id, ...this.accounts[id] }) }),
      loadExistingGrant: (ctx) => this.grant(ctx),
      interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
      cookies: { keys: ["a key of a test"], ...(settings.cookies ?? {}) },
      clientBasedCORS: () => true,
      claims: settings.claims ?? { ...CLAIMS },
      scopes: settings.scopes ?? ["openid", "offline_access", "read", "write"],
      conformIdTokenClaims: false,
      rotateRefreshToken: true,
      clientAuthMethods: [...METHODS, ...(settings.tls?.client_ca ? ["tls_client_auth", "self_signed_tls_client_auth"] : [])],
      pkce: { required: () => settings.pkce_required ?? true },
      ttl: { Session: 3600, Grant: 3600, Interaction: 600, IdToken: 3600, ...settings.ttl },
      ...settings.configuration,
      features: {
        devInteractions: { enabled: false },
        backchannelLogout: { enabled: true },
        rpInitiatedLogout: { enabled: true, logoutSource: (ctx, form) => void (ctx.body = confirming(form)) },
        introspection: { enabled: true, allowedPolicy: () => true },
        jwtIntrospection: { enabled: true },
        revocation: { enabled: true, allowedPolicy: (_ctx, client, token) => token.clientId === client.clientId },
        clientCredentials: { enabled: true },
        resourceIndicators: {
          enabled: true,
          defaultResource: (_ctx, _client, oneOf) => settings.default_resource ?? oneOf,
          useGrantedResource: () => true,
          getResourceServerInfo: resource,
        },
        mTLS: {
          enabled: Boolean(settings.tls?.client_ca),
          tlsClientAuth: Boolean(settings.tls?.client_ca),
          selfSignedTlsClientAuth: Boolean(settings.tls?.client_ca),
          certificateBoundAccessTokens: Boolean(settings.tls?.client_ca),
          getCertificate: (ctx) => new X509Certificate(ctx.socket.getPeerCertificate().raw).toString(),
          certificateAuthorized: (ctx) => ctx.socket.authorized,
          certificateSubjectMatches: (ctx, property, expected) =>
            property === "tls_client_auth_san_dns" && names(ctx).includes(`DNS:${expected}`),
        },
        ...settings.features,
      },
    };
  }

  /** Everyone consents to everything. */
  async grant(ctx) {
    const { client, session, provider, requestParamScopes, resourceServers } = ctx.oidc;
    const old = session.grantIdFor(client.clientId);
    const { accountId } = session;
    const known = old && (await provider.Grant.find(old));
    const grant = known || new provider.Grant({ clientId: client.clientId, accountId });
    grant.addOIDCScope([...requestParamScopes].join(" "));
    for (const [resource, { scope }] of Object.entries(resourceServers ?? {})) grant.addResourceScope(resource, scope);
    await grant.save();
    return grant;
  }
}

const CLAIMS = { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"], profile: ["name"] };

const METHODS = ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"];

const names = (ctx) => ctx.socket.getPeerCertificate().subjectaltname.split(", ");

const confirming = (form) =>
  `<!doctype html><title>Sign out</title>${form}
<button autofocus type="submit" form="op.logoutForm" value="yes" name="logout">Yes, sign out</button>`;
