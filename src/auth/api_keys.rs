//! From an API key to what it stands for: the claims of its family, for as long as an access token lives.
//!
//! A key that was read from the store is good for as long as an access token lives, so that revocations, which are kept
//! as long, also end it. Requests read it again after half of that time, and `stream_reads` the keys of open streams.
//! While the store does not respond, the second half is left.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::auth::store_reads::{Find, StoreReads, StoredCredentialSettings};
use crate::auth::token_cache::CachedToken;
use crate::store::FamilyStore;
use crate::tokens::family::api_key::PresentedKey;
use crate::tokens::family::{Family, claims_of};
use crate::tokens::jwt::{Issuer, VerifiedToken};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// The time of the last use is for people, who need no more than this.
const USE_RESOLUTION: Duration = Duration::from_mins(1);

type RecordUse = dyn Fn(TokenId, UnixTime) + Send + Sync;

/// Finds API keys in the store.
pub struct ApiKeys {
    settings: StoredCredentialSettings,
    /// `None` if a look-up must not change anything.
    record_use: Option<Box<RecordUse>>,
    reads: StoreReads<Family>,
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
    pub fn new(settings: StoredCredentialSettings, find: Arc<Find<Family>>) -> Self {
        let reads = StoreReads::new("API keys", settings.timeout, find);
        ApiKeys { settings, record_use: None, reads }
    }

    /// Records in the store when keys are used.
    pub fn of_store(settings: StoredCredentialSettings, store: Arc<dyn FamilyStore>) -> Self {
        let reading = store.clone();
        let keys = ApiKeys::new(settings, Arc::new(move |id| reading.family(id)));
        // The store has queued the change when this returns. A lost one does no harm.
        ApiKeys { record_use: Some(Box::new(move |id, at| drop(store.used(id, at)))), ..keys }
    }

    pub fn without_effects(&self) -> Self {
        let settings = self.settings.clone();
        ApiKeys { settings, record_use: None, reads: self.reads.with_own_counts() }
    }

    /// Reads the key from the store, for a request that has waited since a while. `Err` if that fails.
    pub(super) async fn read(&self, id: TokenId, since: Instant) -> Result<Option<Family>, Reject> {
        self.reads.read(id, since).await
    }

    /// `timeouts.store`
    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// How many reads of keys have succeeded, and how many have failed.
    pub fn reads(&self) -> [(&'static str, u64); 2] {
        self.reads.counts()
    }

    /// Until when requests use a key that is read at `now`.
    pub(super) fn usable_until(&self, now: UnixTime) -> UnixTime {
        now + self.settings.lifetime / 2
    }

    /// Reads a key that has open streams. `None` if it is not good any more.
    pub(super) async fn read_for_stream(&self, id: TokenId, now: UnixTime) -> Result<Option<Family>, Reject> {
        let found = self.reads.read_for_stream(id).await?;
        Ok(found.filter(|family| family.key_hash.is_some() && family.is_live(now)))
    }

    /// Records that a request with this key was allowed, unless that was done within [`USE_RESOLUTION`].
    pub fn note_use(&self, key: &CachedToken, now: UnixTime) {
        if let (Some(record_use), Some(id)) = (&self.record_use, key.token.family)
            && key.is_use_due(now, USE_RESOLUTION)
        {
            record_use(id, now);
        }
    }

    /// What the key stands for at `now`.
    pub(super) fn stand_for(&self, family: &Family, policy: &Arc<Issuer>, now: UnixTime) -> VerifiedToken {
        let expires = (now + self.settings.lifetime).min(family.absolute_expiry);
        let issued = family.created_at.as_secs();
        let ends = expires.as_secs();
        let claims = claims_of(family, &policy.issuer, &self.settings.audience, issued, ends);
        VerifiedToken::of_api_key(family, policy, claims, expires)
    }
}

/// Without any key.
impl Default for ApiKeys {
    fn default() -> Self {
        let settings =
            StoredCredentialSettings { audience: Vec::new(), lifetime: Duration::ZERO, timeout: Duration::ZERO };
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
    use parking_lot::Mutex as BlockingMutex;

    use super::*;
    use crate::tokens::credential_kind::CredentialKind;
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
        let settings = StoredCredentialSettings { audience: vec!["a".into()], lifetime, timeout: HOUR };
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
            assert!(token.kind == CredentialKind::ApiKey && token.own && token.claims["aud"] == "a");
        }
    }

    #[test]
    fn a_use_is_recorded_at_most_once_a_minute() {
        let (_, family) = key();
        let policy = VerifiedToken::with_subject("x".into()).policy().clone();
        let recorded = Arc::new(BlockingMutex::new(Vec::new()));
        let seen = recorded.clone();
        let record_use: Box<RecordUse> = Box::new(move |_, at| seen.lock().push(at));
        let keys = ApiKeys { record_use: Some(record_use), ..keys(HOUR) };
        // To stand for a key is no use of it: streams and introspection do so too.
        let token = keys.stand_for(&family, &policy, NOW);
        assert_eq!(*recorded.lock(), []);
        let known = CachedToken::new("", token, Vec::new(), 1).last_used_at(NOW);
        let next = NOW + USE_RESOLUTION;
        keys.without_effects().note_use(&known, next);
        for now in [NOW, next - Duration::from_millis(1), next, next, NOW, next + USE_RESOLUTION] {
            keys.note_use(&known, now);
        }
        assert_eq!(*recorded.lock(), [next, next + USE_RESOLUTION]);
    }
}
