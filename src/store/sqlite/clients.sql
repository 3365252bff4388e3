-- Watermarks of clients.

create table clients (
    client_id    text    not null,
    subject      text    not null, -- of this user alone; empty: of all users
    not_after    integer not null,
    needed_until integer not null,
    primary key (client_id, subject)
) strict;

create index clients_by_need on clients (needed_until);

alter table revocations add column client text; -- of the kind client, which has the subject as name; null: of all
alter table endings add column client text;

-- Logins of the gateway's own have no client, and are not in it.
create index families_of_client on families (client_id, created_at) where revoked_at is null and client_id <> '';
