-- Watermarks of clients. The kind of their entries is token, without an issuer: gateways that do not know them read
-- them as the revocation of a token that does not exist.

create table clients (
    client_id    text   collate "C" not null,
    subject      text   collate "C" not null, -- of this user alone; empty: of all users
    not_after    bigint not null,
    needed_until bigint not null,
    primary key (client_id, subject)
);

create index clients_by_need on clients (needed_until);

alter table revocations add column client text; -- the client id, with the subject as name; null: no client
