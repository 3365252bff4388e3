-- Times are milliseconds since 1970 in UTC; the largest integer means "never". Token ids are in base62. The database
-- has no tokens, and without the root secret no token can be derived from it. Names are compared byte by byte, so that
-- no index depends on a locale.

create table schema_versions (
    version         integer not null primary key,
    compatible_from integer not null, -- the oldest program that can use this schema, by the schema that it knows
    at              bigint  not null,
    by              text    not null  -- the program that made the step
);

-- One row for each login. A rotation changes no indexed column, so that it writes only this table.
create table families (
    id              text     collate "C" not null primary key,
    subject         text     collate "C" not null,
    scope           text     not null,
    audience        text     not null, -- JSON array of strings
    client_id       text     not null,
    claims          text     not null, -- JSON object
    label           text     not null,
    salt            bytea    not null,
    generation      bigint   not null,
    root            integer  not null,
    rotated_at      bigint   not null,
    confirmed       bigint   not null,
    created_at      bigint   not null,
    last_used_at    bigint   not null,
    idle            bigint,            -- milliseconds; null: as configured
    idle_expiry     bigint   not null,
    absolute_expiry bigint   not null,
    revoked_at      bigint,            -- null: not revoked
    revoked_reason  text,
    address         text               -- of the last use; null: unknown
) with (fillfactor = 80);

create index families_of_subject on families (subject, created_at);
-- For limits.sessions_per_subject: a subject may have a hundred live families and a million ended ones.
create index families_unrevoked on families (subject, created_at) where revoked_at is null;
create index families_by_expiry on families (absolute_expiry);
-- For a watermark of now, which also ends the families that are dated later.
create index families_by_creation on families (created_at) where revoked_at is null;

-- The log of revocations: 1, 2, 3, … in the order of commits.
create table revocations (
    sequence  bigint not null primary key,
    kind      text   not null, -- family, token, subject, issuer, everything
    issuer    text,            -- token, subject, issuer
    name      text,            -- family: its id; token: the jti; subject: the subject
    not_after bigint,          -- subject, issuer, everything
    at        bigint not null,
    until     bigint not null,
    tag       bytea  not null  -- random: tells whether two databases have the same entry
);

create index revocations_by_until on revocations (until);

-- Watermarks of the gateway's own subjects: families that were created at or before not_after are void.
create table subjects (
    subject      text   collate "C" not null primary key,
    not_after    bigint not null,
    needed_until bigint not null
);

create index subjects_by_need on subjects (needed_until);

-- A key is pending, active, retired or revoked: the last of these times that is not null decides.
create table signing_keys (
    kid          text     collate "C" not null primary key,
    number       bigint   not null generated always as identity, -- the order of creation
    algorithm    text     not null,
    root         integer  not null, -- the number of the root secret that seals it
    sealed       bytea    not null, -- the encrypted private key; empty if it was revoked for good
    created_at   bigint   not null,
    activated_at bigint,
    retired_at   bigint,
    revoked_at   bigint,
    token_life   bigint   not null  -- milliseconds; the longest lifetime of access tokens while it signed
);

-- Undelivered audit events.
create table audit (
    sequence bigint not null generated always as identity primary key,
    id       bytea  not null unique, -- random: a write that is repeated after a lost connection is not doubled
    event    text   not null         -- a JSON object
);

-- Few rows, changed often: each page has space for many versions of them.
create table meta (
    name  text   collate "C" not null primary key,
    value bigint not null,
    tag   bytea
) with (fillfactor = 10);

insert into meta (name, value, tag) values
    ('revocation_sequence', 0, ''), -- of the newest revocation, with its tag, also after that one was deleted
    ('watermark', 0, null),         -- over everything; 0: none
    ('longest_life', 0, null),      -- milliseconds; the largest value that was ever configured
    ('longest_family', 0, null),    -- likewise
    ('signing_keys', 0, null),      -- incremented by each change of a signing key
    ('checks', 0, null);            -- incremented by the readiness probes of a gateway that is not in replicas yet

-- The gateways that use this database. A gateway that is not listed follows no revocations.
create table replicas (
    id      text   collate "C" not null primary key,
    applied bigint not null, -- the newest revocation that it enforces, with all before it
    seen_at bigint not null,
    version text   not null
) with (fillfactor = 50);

-- What only one gateway does at a time.
create table leases (
    name   text   collate "C" not null primary key,
    holder text   not null,
    epoch  bigint not null,
    until  bigint not null
) with (fillfactor = 50);

-- Keys of TLS session tickets, one for each window of time.
create table ticket_keys (
    period bigint   not null primary key,
    root   integer  not null, -- the number of the root secret that seals it
    sealed bytea    not null
);

-- A value derived from each root secret, so that a gateway with another one does not start.
create table root_check (
    root  integer  not null primary key,
    value bytea    not null,
    at    bigint   not null -- when the first gateway started with it
);
