-- Accounts, orders and certificates of ACME.

create table acme (
    name    text    not null primary key,
    version bigint  not null,             -- how often it was written
    root    integer not null,             -- the number of the root secret that seals it
    sealed  bytea   not null
);
