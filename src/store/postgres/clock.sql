-- By how many milliseconds the clock of the database was set back in all, as gateways have found it: one row. The time
-- of a rotation is that of the clock plus this, so that it is never set back.
create table clock (
    id       integer not null primary key check (id = 1),
    set_back bigint  not null
);

insert into clock (id, set_back) values (1, 0);
