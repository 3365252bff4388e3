-- For a search of live sessions, as in the step before. For limits.sessions_per_subject too.

drop index families_unrevoked;
create index families_unrevoked on families (subject, created_at desc, id desc) where revoked_at is null;
