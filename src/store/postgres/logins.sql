-- For a search of sessions by subject, in the order of `store/search`. A rotation changes no column of these indexes.

-- At once, because two locks could wait for each other. The indexes of a million sessions take some seconds.
lock table families in access exclusive mode;

drop index families_of_subject;
create index families_of_subject on families (subject, created_at desc, id desc);
drop index families_unrevoked;
create index families_unrevoked on families (subject, created_at desc, id desc) where revoked_at is null;
