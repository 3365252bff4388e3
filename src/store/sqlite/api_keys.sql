-- API keys, which are families without refresh tokens.

alter table families add column key_hash blob; -- SHA-256 of the secret; null: a login
create index families_api_keys on families (subject, created_at desc, id desc) where key_hash is not null;
