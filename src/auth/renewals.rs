//! The freshest token seen of each family that has open streams.
//!
//! A client that refreshes keeps its streams open by using the new token on a request. A new token is verified once,
//! and that is where it is recorded here. Known tokens, which are the hot path, never reach this module.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::auth::token_cache::CachedToken;
use crate::types::clock::Uptime;
use crate::types::ids::TokenId;

/// How long, at least, the token of a family without open streams is remembered: the client may use it a moment before
/// the gateway registers the stream.
const RECENT: Duration = Duration::from_secs(2);

/// Maximum number of such tokens. If a token is not remembered, its stream ends when the token that opened it expires.
const MAX_RECENT: usize = 8_192;

/// Shared by all workers.
#[derive(Default)]
pub struct Renewals {
    families: Mutex<Families>,
}

type ByFamily<T> = HashMap<TokenId, T, RandomState>;

#[derive(Default)]
struct Families {
    watched: ByFamily<Watch>,
    recent: ByFamily<Arc<CachedToken>>,
    /// The previous `recent`.
    older: ByFamily<Arc<CachedToken>>,
    recent_since: Uptime,
}

#[derive(Default)]
struct Watch {
    streams: usize,
    is_api_key: bool,
    is_handle: bool,
    freshest: Option<Arc<CachedToken>>,
}

impl Renewals {
    /// Records a token of this family that was just verified.
    pub fn record(&self, family: TokenId, known: &Arc<CachedToken>, now: Uptime) {
        let mut families = self.lock();
        if let Some(watch) = families.watched.get_mut(&family) {
            return keep_freshest(&mut watch.freshest, known);
        }
        if now.since(families.recent_since) >= RECENT {
            families.older = std::mem::take(&mut families.recent);
            families.recent_since = now;
        }
        if families.recent.len() < MAX_RECENT {
            let mut freshest = families.recent.remove(&family);
            keep_freshest(&mut freshest, known);
            families.recent.extend(freshest.map(|known| (family, known)));
        }
    }

    /// Remembers the family's freshest token until the returned guard is dropped.
    pub fn watch(self: &Arc<Self>, family: TokenId) -> FamilyWatch {
        let mut families = self.lock();
        let remembered = [families.recent.get(&family).cloned(), families.older.get(&family).cloned()];
        let watch = families.watched.entry(family).or_default();
        watch.streams += 1;
        for known in remembered.into_iter().flatten() {
            keep_freshest(&mut watch.freshest, &known);
        }
        FamilyWatch { family, renewals: self.clone() }
    }

    /// As [`Renewals::watch`], for an API key: nothing newer comes unless the gateway reads the key again.
    pub fn watch_api_key(self: &Arc<Self>, id: TokenId) -> FamilyWatch {
        let watch = self.watch(id);
        if let Some(watched) = self.lock().watched.get_mut(&id) {
            watched.is_api_key = true;
        }
        watch
    }

    /// As [`Renewals::watch_api_key`], for the handle of a login.
    pub fn watch_handle(self: &Arc<Self>, id: TokenId) -> FamilyWatch {
        let watch = self.watch(id);
        if let Some(watched) = self.lock().watched.get_mut(&id) {
            watched.is_handle = true;
        }
        watch
    }

    /// The logins with a handle that have open streams.
    pub fn handles(&self) -> Vec<TokenId> {
        let families = self.lock();
        families.watched.iter().filter(|(_, watch)| watch.is_handle).map(|(id, _)| *id).collect()
    }

    /// The API keys that have open streams.
    pub fn api_keys(&self) -> Vec<TokenId> {
        let families = self.lock();
        families.watched.iter().filter(|(_, watch)| watch.is_api_key).map(|(id, _)| *id).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_freshest(freshest: &mut Option<Arc<CachedToken>>, known: &Arc<CachedToken>) {
    if freshest.as_ref().is_none_or(|freshest| freshest.token.expires < known.token.expires) {
        *freshest = Some(known.clone());
    }
}

/// One stream's interest in the fresher tokens of its family.
pub struct FamilyWatch {
    family: TokenId,
    renewals: Arc<Renewals>,
}

impl FamilyWatch {
    pub fn freshest(&self) -> Option<Arc<CachedToken>> {
        self.renewals.lock().watched.get(&self.family)?.freshest.clone()
    }
}

impl Drop for FamilyWatch {
    fn drop(&mut self) {
        let mut families = self.renewals.lock();
        let Some(watch) = families.watched.get_mut(&self.family) else { return };
        watch.streams -= 1;
        if watch.streams == 0 {
            families.watched.remove(&self.family);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::jwt::VerifiedToken;
    use crate::types::clock::UnixTime;

    const START: Uptime = Uptime::from_secs(0);
    const MICROSECOND: Duration = Duration::from_micros(1);

    fn family(number: usize) -> TokenId {
        TokenId::from_bytes((number as u128).to_be_bytes())
    }

    fn expiring(secs: u64) -> Arc<CachedToken> {
        let mut token = VerifiedToken::with_subject("alice".into());
        token.expires = UnixTime::from_secs(secs);
        Arc::new(CachedToken::new("a.b.c", token, Vec::new(), 0))
    }

    fn freshest(renewals: &Arc<Renewals>, number: usize) -> Option<u64> {
        renewals.watch(family(number)).freshest().map(|known| known.token.expires.as_secs())
    }

    #[test]
    fn a_family_without_streams_is_remembered_for_a_moment() {
        let renewals = Arc::new(Renewals::default());
        renewals.record(family(1), &expiring(60), START);
        renewals.record(family(2), &expiring(70), START + (RECENT - MICROSECOND));
        assert_eq!(renewals.lock().older.len(), 0);
        renewals.record(family(3), &expiring(80), START + RECENT);
        assert_eq!([1, 2, 3].map(|number| freshest(&renewals, number)), [Some(60), Some(70), Some(80)]);
        renewals.record(family(4), &expiring(90), START + 2 * RECENT);
        assert_eq!([1, 2, 3, 4].map(|number| freshest(&renewals, number)), [None, None, Some(80), Some(90)]);
    }

    #[test]
    fn families_without_streams_are_remembered_up_to_a_limit() {
        let renewals = Arc::new(Renewals::default());
        (0..=MAX_RECENT).for_each(|number| renewals.record(family(number), &expiring(60), START));
        let last_two = [MAX_RECENT - 1, MAX_RECENT].map(|number| freshest(&renewals, number));
        assert_eq!((renewals.lock().recent.len(), last_two), (MAX_RECENT, [Some(60), None]));
    }

    #[test]
    fn the_freshest_token_counts_in_whatever_order_they_come() {
        let renewals = Arc::new(Renewals::default());
        let first = expiring(60);
        let record = |known: &Arc<CachedToken>| renewals.record(family(1), known, START);
        [first.clone(), expiring(60), expiring(50)].iter().for_each(record);
        let watch = renewals.watch(family(1));
        assert!(watch.freshest().is_some_and(|known| Arc::ptr_eq(&known, &first)));
        [expiring(70), expiring(65)].iter().for_each(record);
        assert_eq!(freshest(&renewals, 1), Some(70));
    }

    #[test]
    fn a_family_is_watched_until_its_last_stream_ends() {
        let renewals = Arc::new(Renewals::default());
        let watches = [(); 3].map(|()| renewals.watch(family(1)));
        let [first, second, last] = watches;
        drop((first, second));
        renewals.record(family(1), &expiring(60), START);
        assert!(last.freshest().is_some() && renewals.lock().recent.is_empty());
        drop(last);
        assert!(renewals.lock().watched.is_empty());
        let key = renewals.watch_api_key(family(2));
        let _login = renewals.watch(family(3));
        assert_eq!(renewals.api_keys(), [family(2)]);
        drop(key);
        assert_eq!(renewals.api_keys(), []);
    }
}
