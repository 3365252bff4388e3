-- For the revocation of a session at another issuer. A hash, because the issuer may choose a sid of any length.

create index families_of_origin_session on families using hash (origin_session)
    where revoked_at is null and origin_session is not null;
