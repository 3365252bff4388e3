-- Sessions that began at another issuer, revocations of its sessions, and what can be used once.

alter table families add column origin_issuer text;   -- null: a login of the gateway's own
alter table families add column origin_subject text;
alter table families add column origin_session text;  -- the sid there; null: none
alter table families add column origin_dated integer; -- by the clock of that issuer

create index families_of_origin on families (origin_issuer, origin_subject, origin_dated)
    where revoked_at is null and origin_issuer is not null;
create index families_of_origin_session on families (origin_session, origin_issuer)
    where revoked_at is null and origin_session is not null;
-- The kind session has issuer and name, which is the sid.
create index revocations_by_issuer on revocations (issuer, kind, name) where issuer is not null;

create table marks (
    id    blob    not null primary key, -- a hash of kind, issuer and key
    kind  text    not null,
    value blob    not null,             -- a hash of what was used
    until integer not null
) strict;

create index marks_by_until on marks (until);
