-- What users have granted to clients at the authorization endpoint, and the spent refresh tokens that came back of it.

alter table families add column superseded_at integer; -- the first late refresh of a window; null: none
alter table families add column late_refreshes integer; -- those of this window; null: the family is no grant
