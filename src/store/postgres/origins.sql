-- Sessions that began at another issuer.

alter table families
    add column origin_issuer text collate "C",  -- null: a login of the gateway's own
    add column origin_subject text collate "C",
    add column origin_session text collate "C", -- the sid there; null: none
    add column origin_dated bigint;             -- by the clock of that issuer
