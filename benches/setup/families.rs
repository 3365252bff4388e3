//! Sessions as a login creates them, for the benches of both stores.

#![allow(unreachable_pub, reason = "`pub` means visible to the benches; nothing is exported")]

use std::time::Duration;

use bearward::tokens::family::{Family, Lifetimes};
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use bearward::types::secret;

pub const LIFETIMES: Lifetimes = Lifetimes {
    access: Duration::from_secs(900),
    idle: Duration::from_secs(7 * 86_400),
    absolute: Duration::from_secs(30 * 86_400),
    grace: Duration::from_secs(10),
};

pub fn family(now: UnixTime) -> Family {
    let id = TokenId::random();
    Family {
        id,
        subject: id.to_string(),
        scope: "orders:read orders:write".into(),
        audience: vec![],
        client_id: "app".into(),
        claims: Default::default(),
        label: "a phone".into(),
        salt: secret::random(),
        generation: 1,
        root: 1,
        address: None,
        idle: None,
        rotated_at: now,
        confirmed: 0,
        created_at: now,
        last_used_at: now,
        idle_expiry: now + LIFETIMES.idle,
        absolute_expiry: now + LIFETIMES.absolute,
        key_hash: None,
        key_rate: None,
        origin: None,
        grant: None,
        revoked: None,
    }
}
