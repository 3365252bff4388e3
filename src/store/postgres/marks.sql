-- What can be used once.

create table marks (
    id    bytea   not null primary key, -- a hash of kind, issuer and key
    kind  text    not null,
    value bytea   not null,             -- a hash of what was used
    until bigint  not null,
    tag   bytea   not null,             -- random: tells a call that runs again after a lost connection from another one
    seen  integer not null              -- how often it was used again
);

create index marks_by_until on marks (until);
