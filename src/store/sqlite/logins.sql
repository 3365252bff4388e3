-- For a search of sessions by subject, in the order of `store/search`. A rotation changes no column of these indexes.

drop index families_of_subject;
create index families_of_subject on families (subject, created_at desc, id desc);
drop index families_unrevoked;
create index families_unrevoked on families (subject, created_at desc, id desc) where revoked_at is null;
