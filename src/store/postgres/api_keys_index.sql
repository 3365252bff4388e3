-- For the list of API keys.

create index families_api_keys on families (subject, created_at desc, id desc) where key_hash is not null;
