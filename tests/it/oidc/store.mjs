// What the provider remembers. It survives a change of the signing keys, for which the provider is made anew.

const GRANTABLE = new Set(["AccessToken", "AuthorizationCode", "RefreshToken"]);

export class Store {
  models = new Map();

  of(name) {
    if (!this.models.has(name)) this.models.set(name, new Map());
    return this.models.get(name);
  }

  values(name) {
    return [...this.of(name).values()];
  }

  /** What oidc-provider calls an adapter: one for each of its models. */
  adapter = (name) => {
    const entries = this.of(name);
    const find = (matches) => [...entries.values()].find(matches);
    return {
      // Clients come from the tests alone.
      upsert: async (id, payload) => void (name === "Client" || entries.set(id, payload)),
      find: async (id) => entries.get(id),
      findByUid: async (uid) => find((payload) => payload.uid === uid),
      findByUserCode: async (code) => find((payload) => payload.userCode === code),
      consume: async (id) => void (entries.get(id).consumed = Math.floor(Date.now() / 1000)),
      destroy: async (id) => void entries.delete(id),
      revokeByGrantId: async (grant) => this.revoke(grant),
    };
  };

  /** Forgets all tokens of a grant. */
  revoke(grant) {
    for (const model of GRANTABLE) {
      for (const [id, payload] of this.of(model)) if (payload.grantId === grant) this.of(model).delete(id);
    }
  }
}
