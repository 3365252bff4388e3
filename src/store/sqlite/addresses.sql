-- Where a login was used last, and how long an access token of ours can be good for a refresh.

alter table families add column address text; -- null: not known

insert into meta (name, value) values ('longest_family', 0); -- milliseconds; the largest that was ever configured
