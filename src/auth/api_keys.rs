//! From an API key to what it stands for: the claims of its family, for as long as an access token lives.
//!
//! A key that was read from the store is good for as long as an access token lives, so that revocations, which are kept
//! as long, also end it. Requests read it again after half of that time, and [`ApiKeys::renew_streams`] reads the keys
//! of open streams. While the store does not respond, the second half is left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::auth::keyring::Keyring;
use crate::auth::renewals::Renewals;
use crate::auth::token_cache::CachedToken;
use crate::store::{Store, StoreFuture};
use crate::tokens::family::api_key::PresentedKey;
use crate::tokens::family::{Family, claims_of};
use crate::tokens::jwt::{Issuer, VerifiedToken};
use crate::types::clock::{Clock, UnixTime};
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// Look-ups that can run at the same time, each for another key.
const TURNS: usize = 64;

/// The time of the last use is for people, who need no more than this.
const USE_RESOLUTION: Duration = Duration::from_mins(1);

type FindFamily = dyn Fn(TokenId) -> StoreFuture<Option<Family>> + Send + Sync;
type RecordUse = dyn Fn(TokenId, UnixTime) + Send + Sync;

/// `[tokens]` and `[timeouts]`, as far as they concern API keys.
#[derive(Clone)]
pub struct ApiKeySettings {
    /// `tokens.audience`
    pub audience: Vec<String>,
    /// `tokens.access_lifetime`: how long a key is good without reading the store again.
    pub lifetime: Duration,
    /// `timeouts.store`
    pub timeout: Duration,
}

/// Finds API keys in the store.
pub struct ApiKeys {
    settings: ApiKeySettings,
    find: Arc<FindFamily>,
    /// `None` if a look-up must not change anything.
    record_use: Option<Box<RecordUse>>,
    /// Requests with the same unknown key wait for one look-up.
    turns: [Mutex<()>; TURNS],
}

/// Why a presented key is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadKey {
    Unknown,
    WrongSecret,
    Revoked,
    Expired,
}

impl BadKey {
    /// Returns true if the client may have guessed.
    pub(super) fn is_guess(self) -> bool {
        matches!(self, BadKey::Unknown | BadKey::WrongSecret)
    }

    /// For the log. All bad keys have the same response.
    pub(super) fn reject(self) -> Reject {
        let detail = match self {
            BadKey::Unknown => "unknown key id",
            BadKey::WrongSecret => "wrong secret",
            BadKey::Revoked => "the key was revoked",
            BadKey::Expired => "the key expired",
        };
        Reject::new(Reason::BadApiKey, detail)
    }
}

impl ApiKeys {
    pub fn new(settings: ApiKeySettings, find: Arc<FindFamily>) -> Self {
        ApiKeys { settings, find, record_use: None, turns: [const { Mutex::const_new(()) }; TURNS] }
    }

    /// Records in the store when keys are used.
    pub fn of_store(settings: ApiKeySettings, store: Arc<dyn Store>) -> Self {
        let reading = store.clone();
        let keys = ApiKeys::new(settings, Arc::new(move |id| reading.family(id)));
        // The store has queued the change when this returns. A lost one does no harm.
        ApiKeys { record_use: Some(Box::new(move |id, at| drop(store.used(id, at)))), ..keys }
    }

    pub fn without_effects(&self) -> Self {
        ApiKeys::new(self.settings.clone(), self.find.clone())
    }

    /// Waits until no other request looks this key up.
    pub(super) async fn turn(&self, id: TokenId) -> MutexGuard<'_, ()> {
        self.turns[place_of(id)].lock().await
    }

    /// As [`ApiKeys::turn`], if that needs no waiting.
    pub(super) fn try_turn(&self, id: TokenId) -> Option<MutexGuard<'_, ()>> {
        self.turns[place_of(id)].try_lock().ok()
    }

    /// Reads the key from the store. `Err` if that fails.
    pub(super) async fn find(&self, id: TokenId) -> Result<Option<Family>, Reject> {
        let limit = self.settings.timeout;
        match tokio::time::timeout(limit, (self.find)(id)).await {
            Ok(found) => found.map_err(|error| {
                tracing::error!(%error, "cannot read an API key");
                Reject::new(Reason::StoreUnavailable, error.message)
            }),
            Err(_) => Err(Reject::new(Reason::StoreUnavailable, format!("no response within {limit:?}"))),
        }
    }

    /// Until when requests use a key that is read at `now`.
    pub(super) fn usable_until(&self, now: UnixTime) -> UnixTime {
        now + self.settings.lifetime / 2
    }

    /// How often to call [`ApiKeys::renew_streams`]: a failed one is repeated in time.
    pub fn renewal_interval(&self) -> Duration {
        self.settings.lifetime / 8
    }

    /// Reads the keys that have open streams, so that the streams go on. A key that is not good any more, or cannot be
    /// read, ends its streams later.
    pub async fn renew_streams(&self, renewals: &Renewals, keyring: &Keyring, clock: &dyn Clock) {
        for id in renewals.api_keys() {
            let now = clock.now();
            let found = self.find(id).await.ok().flatten();
            let Some(family) = found.filter(|family| family.key_hash.is_some() && family.is_live(now)) else {
                continue;
            };
            let generation = keyring.generation();
            let token = self.stand_for(&family, &keyring.keys().own().trusted.policy, now);
            let known = CachedToken::new("", token, Vec::new(), generation);
            renewals.record(id, &Arc::new(known), clock.uptime());
        }
    }

    /// What the key stands for at `now`.
    pub(super) fn stand_for(&self, family: &Family, policy: &Arc<Issuer>, now: UnixTime) -> VerifiedToken {
        if let Some(record_use) = &self.record_use
            && family.last_used_at + USE_RESOLUTION <= now
        {
            record_use(family.id, now);
        }
        let expires = (now + self.settings.lifetime).min(family.absolute_expiry);
        let (issued, ends) = (family.created_at.as_secs(), expires.as_secs());
        let claims = claims_of(family, &policy.issuer, &self.settings.audience, issued, ends);
        VerifiedToken::of_api_key(family, policy, claims, expires)
    }
}

fn place_of(id: TokenId) -> usize {
    (id.as_u128() % TURNS as u128) as usize
}

/// Without any key.
impl Default for ApiKeys {
    fn default() -> Self {
        let settings = ApiKeySettings { audience: Vec::new(), lifetime: Duration::ZERO, timeout: Duration::ZERO };
        ApiKeys::new(settings, Arc::new(|_| Box::pin(async { Ok(None) })))
    }
}

/// Checks what the store has of a key. The secret first, so that only its owner can learn more from the time it takes.
pub(super) fn check(family: Option<Family>, presented: &PresentedKey, now: UnixTime) -> Result<Family, BadKey> {
    let family = family.ok_or(BadKey::Unknown)?;
    // The id of a login is no key.
    let stored = family.key_hash.ok_or(BadKey::Unknown)?;
    if !presented.matches(&stored) {
        return Err(BadKey::WrongSecret);
    }
    match &family.revoked {
        Some(_) => Err(BadKey::Revoked),
        None if family.is_live(now) => Ok(family),
        None => Err(BadKey::Expired),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use super::*;
    use crate::tokens::family::api_key::generate;
    use crate::tokens::family::{RevokeReason, RevokedAt};

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const HOUR: Duration = Duration::from_hours(1);

    fn key() -> (PresentedKey, Family) {
        let family = Family::sample(NOW - HOUR);
        let (text, hash) = generate(family.id);
        let family = Family { key_hash: Some(hash), absolute_expiry: NOW + HOUR, ..family };
        (PresentedKey::parse(&text).expect("well formed"), family)
    }

    fn keys(lifetime: Duration) -> ApiKeys {
        let settings = ApiKeySettings { audience: vec!["a".into()], lifetime, timeout: HOUR };
        ApiKeys::new(settings, Arc::new(|_| Box::pin(async { Ok(None) })))
    }

    #[test]
    fn only_a_live_key_with_its_secret_is_good() {
        let (presented, family) = key();
        let (_, other_hash) = generate(family.id);
        let revoked = Some(RevokedAt { at: NOW, reason: RevokeReason::Admin });
        let checked = |family| check(family, &presented, NOW).map(|family| family.id);
        assert_eq!(checked(Some(family.clone())), Ok(family.id));
        for (found, expected) in [
            (None, BadKey::Unknown),
            (Some(Family { key_hash: None, ..family.clone() }), BadKey::Unknown),
            (Some(Family { key_hash: Some(other_hash), ..family.clone() }), BadKey::WrongSecret),
            (Some(Family { key_hash: Some(other_hash), revoked, ..family.clone() }), BadKey::WrongSecret),
            (Some(Family { revoked, ..family.clone() }), BadKey::Revoked),
            (Some(Family { absolute_expiry: NOW, ..family.clone() }), BadKey::Expired),
        ] {
            assert_eq!(checked(found), Err(expected));
            assert_eq!(expected.is_guess(), matches!(expected, BadKey::Unknown | BadKey::WrongSecret));
            assert_eq!(expected.reject().reason, Reason::BadApiKey);
        }
    }

    #[test]
    fn a_key_stands_for_a_token_that_ends_with_it() {
        let (_, family) = key();
        let policy = VerifiedToken::with_subject("x".into()).policy().clone();
        for (lifetime, expires) in [(HOUR / 2, NOW + HOUR / 2), (2 * HOUR, NOW + HOUR)] {
            let token = keys(lifetime).stand_for(&family, &policy, NOW);
            assert_eq!((token.expires, token.claims["exp"].as_u64()), (expires, Some(expires.as_secs())));
            assert_eq!((token.family, token.dated, &*token.subject), (Some(family.id), family.created_at, "alice"));
            assert!(token.is_api_key && token.own && token.claims["aud"] == "a");
        }
    }

    #[test]
    fn a_use_is_recorded_at_most_once_a_minute() {
        let (_, family) = key();
        let policy = VerifiedToken::with_subject("x".into()).policy().clone();
        let recorded = Arc::new(StdMutex::new(Vec::new()));
        let seen = recorded.clone();
        let record_use: Box<RecordUse> = Box::new(move |_, at| seen.lock().expect("not poisoned").push(at));
        let keys = ApiKeys { record_use: Some(record_use), ..keys(HOUR) };
        for last_used_at in [NOW, NOW - USE_RESOLUTION / 2, NOW - USE_RESOLUTION] {
            keys.stand_for(&Family { last_used_at, ..family.clone() }, &policy, NOW);
        }
        keys.without_effects().stand_for(&family, &policy, NOW);
        assert_eq!(*recorded.lock().expect("not poisoned"), [NOW]);
    }
}
