-- Times are milliseconds since 1970 in UTC; the largest integer means "never". Token ids are in base62. The database
-- has no tokens, and without the root secret no token can be derived from it.

-- One row for each login. A rotation changes no indexed column, so that it writes only this table.
create table families (
    id              text    not null primary key,
    subject         text    not null,
    scope           text    not null,
    audience        text    not null, -- JSON array of strings
    client_id       text    not null,
    claims          text    not null, -- JSON object
    label           text    not null,
    salt            blob    not null,
    generation      integer not null,
    root            integer not null,
    rotated_at      integer not null,
    confirmed       integer not null,
    created_at      integer not null,
    last_used_at    integer not null,
    idle            integer,          -- milliseconds; null: as configured
    idle_expiry     integer not null,
    absolute_expiry integer not null,
    revoked_at      integer,          -- null: not revoked
    revoked_reason  text
) strict;

create index families_of_subject on families (subject, created_at);
-- For limits.sessions_per_subject: a subject may have a hundred live families and a million ended ones. It contains
-- created_at because SQLite would otherwise choose the index above for the watermark.
create index families_unrevoked on families (subject, created_at) where revoked_at is null;
create index families_by_expiry on families (absolute_expiry);

-- The log of revocations: 1, 2, 3, … in the order of commits.
create table revocations (
    sequence  integer not null primary key,
    kind      text    not null, -- family, token, subject, issuer, everything
    issuer    text,             -- token, subject, issuer
    name      text,             -- family: its id; token: the jti; subject: the subject
    not_after integer,          -- subject, issuer, everything
    at        integer not null,
    until     integer not null
) strict;

create index revocations_by_until on revocations (until);

-- Watermarks of the gateway's own subjects: families that were created at or before not_after are void.
create table subjects (
    subject      text    not null primary key,
    not_after    integer not null,
    needed_until integer not null
) strict;

create index subjects_by_need on subjects (needed_until);

-- A key is pending, active, retired or revoked: the last of these times that is not null decides.
create table signing_keys (
    kid          text    not null primary key,
    algorithm    text    not null,
    root         integer not null, -- the number of the root secret that seals it
    sealed       blob    not null, -- the encrypted private key; empty if it was revoked for good
    created_at   integer not null,
    activated_at integer,
    retired_at   integer,
    revoked_at   integer,
    token_life   integer not null  -- milliseconds; the longest lifetime of access tokens while it signed
) strict;

create table meta (
    name  text    not null primary key,
    value integer not null
) strict;

insert into meta (name, value) values
    ('revocation_sequence', 0), -- of the newest revocation, also after that one was deleted
    ('watermark', 0),           -- over everything; 0: none
    ('longest_life', 0),        -- milliseconds; the largest value that was ever configured
    ('checks', 0);              -- incremented by readiness probes, which must write
