-- Logins at providers, beside their families.

create table provider_logins (
    id         text    not null primary key, -- of the family
    subject    text    not null,             -- of the family
    began_at   integer not null,             -- created_at of the family
    provider   text    not null,
    root       integer not null,             -- the number of the root secret that seals the tokens
    sealed     blob    not null,             -- the encrypted tokens of the provider
    version    integer not null,             -- how often they were refreshed
    due        integer not null,
    claimed    integer not null,             -- 1: the browser has used the session
    holder     blob,                         -- who refreshes the tokens; null: free
    held_until integer not null,
    check_at   integer not null,             -- when to look whether the session has ended
    retry_at   integer not null,             -- if it has ended: not before this
    ended_at   integer                       -- when its end was first noticed
) strict;

create index provider_logins_by_check on provider_logins (check_at);
-- For the watermarks of subjects, and the one over everything.
create index provider_logins_of_subject on provider_logins (subject, began_at);
create index provider_logins_by_begin on provider_logins (began_at);
-- Leases that their holders have neither used up nor given up.
create index provider_logins_by_lease on provider_logins (held_until) where held_until > 0;
create index provider_logins_by_end on provider_logins (ended_at) where ended_at is not null;
