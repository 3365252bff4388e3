-- What is recorded and not yet delivered. With autoincrement the sequence goes on when the table is empty, and an undone
-- transaction leaves no gap.
create table audit (
    sequence integer not null primary key autoincrement,
    event    text    not null -- a JSON object
) strict;
