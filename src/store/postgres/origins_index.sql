-- For a watermark over a subject of another issuer, or over that issuer.

create index families_of_origin on families (origin_issuer, origin_subject, origin_dated)
    where revoked_at is null and origin_issuer is not null;
