-- For a watermark of a client. It depends on no locale, unlike the column. Logins of the gateway's own have no client,
-- and are not in it.

create index families_of_client on families (client_id collate "C", created_at)
    where revoked_at is null and client_id <> '';
