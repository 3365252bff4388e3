-- Undelivered audit events. With autoincrement the sequence continues when the table is empty, and a rolled-back
-- transaction leaves no gap.
create table audit (
    sequence integer not null primary key autoincrement,
    event    text    not null -- a JSON object
) strict;
