-- API keys, which are families without refresh tokens.

alter table families add column key_hash bytea; -- SHA-256 of the secret; null: a login
