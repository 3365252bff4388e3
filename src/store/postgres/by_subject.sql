-- For a search of sessions by subject, in the order of `store/search`. A rotation changes no column of the index. One
-- index in each step: gateways wait for its lock.

drop index families_of_subject;
create index families_of_subject on families (subject, created_at desc, id desc);
