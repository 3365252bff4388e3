-- Logins at providers, beside their families.

create table provider_logins (
    id         text    collate "C" not null primary key, -- of the family
    subject    text    collate "C" not null,             -- of the family
    began_at   bigint  not null,                         -- created_at of the family
    provider   text    not null,
    root       integer not null,                         -- the number of the root secret that seals the tokens
    sealed     bytea   not null,                         -- the encrypted tokens of the provider
    version    bigint  not null,                         -- how often they were refreshed
    due        bigint  not null,
    claimed    boolean not null,                         -- the browser has used the session
    holder     bytea,                                    -- who refreshes the tokens
    held_until bigint  not null,
    check_at   bigint  not null,                         -- when to look whether the session has ended
    retry_at   bigint  not null,                         -- if it has ended: not before this
    ended_at   bigint,                                   -- when its end was first noticed
    changes    bigint  not null default 0                -- incremented by each change of the row
) with (fillfactor = 80);

create index provider_logins_by_check on provider_logins (check_at);
-- For the watermarks of subjects, and the one over everything.
create index provider_logins_of_subject on provider_logins (subject, began_at);
create index provider_logins_by_begin on provider_logins (began_at);
-- Leases that their holders have neither used up nor given up.
create index provider_logins_by_lease on provider_logins (held_until) where held_until > 0;
create index provider_logins_by_end on provider_logins (ended_at) where ended_at is not null;

insert into meta (name, value, tag) values
    ('provider_logins', 0, null); -- the newest entry of endings that was compared with provider_logins
