-- The address of the last use of a login, and how long an access token of the gateway is accepted at a refresh.

alter table families add column address text; -- null: unknown

insert into meta (name, value) values ('longest_family', 0); -- milliseconds; the largest value that was ever configured
