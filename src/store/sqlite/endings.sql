-- What was ended, why and by which actor, for operators: the entries of the log of revocations, which are kept longer
-- here.
create table endings (
    sequence  integer not null primary key, -- that of the log
    kind      text    not null,             -- as in the log, with the columns that belong to it
    issuer    text,
    name      text,
    not_after integer,
    at        integer not null,
    reason    text    not null,
    by        text,                         -- operator:NAME or caller:SUBJECT; null: the owner, the gateway, or unknown
    until     integer not null
) strict;

create index endings_by_others on endings (name) where by is not null;
