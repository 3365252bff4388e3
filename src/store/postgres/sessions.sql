-- Revocations of sessions at another issuer. The kind of their entries is token, with the sid as name: gateways that do
-- not know them read them as the revocation of one token.

alter table revocations add column session boolean; -- true: the name is a sid; null: false

-- For a login at another issuer. A hash, because names have any length.
create index revocations_by_name on revocations using hash (coalesce(name, issuer)) where issuer is not null;
