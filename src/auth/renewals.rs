//! Which fresher tokens were seen of families that have streams open.
//!
//! A client that refreshes keeps its streams by using the new token for a request. That a token is new shows where it is
//! verified, once in its life and at the price of a signature; there it is noted. Known tokens, which are the hot path, never
//! come here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::auth::token_cache::CachedToken;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// A token that is seen before the stream is entered (which takes a moment) is remembered for so long at least.
const RECENT: Duration = Duration::from_secs(2);

/// So many are, and no more: who is forgotten has streams that end with their own token.
const MOST_RECENT: usize = 8_192;

/// Shared by all workers.
#[derive(Default)]
pub struct Renewals {
    families: Mutex<Families>,
}

type Noted<T> = HashMap<TokenId, T, RandomState>;

#[derive(Default)]
struct Families {
    watched: Noted<Watch>,
    recent: Noted<Arc<CachedToken>>,
    before: Noted<Arc<CachedToken>>,
    /// When `recent` was begun.
    since: UnixTime,
}

#[derive(Default)]
struct Watch {
    streams: usize,
    freshest: Option<Arc<CachedToken>>,
}

impl Renewals {
    /// This token of a family of ours was verified.
    pub fn note(&self, family: TokenId, known: &Arc<CachedToken>, now: UnixTime) {
        let mut families = self.lock();
        if let Some(watch) = families.watched.get_mut(&family) {
            return fresher(&mut watch.freshest, known);
        }
        if now.since(families.since) >= RECENT {
            families.before = std::mem::take(&mut families.recent);
            families.since = now;
        }
        if families.recent.len() < MOST_RECENT {
            let mut freshest = families.recent.remove(&family);
            fresher(&mut freshest, known);
            families.recent.extend(freshest.map(|known| (family, known)));
        }
    }

    /// Remembers the family's freshest token for as long as the answer is kept.
    pub fn watch(self: &Arc<Self>, family: TokenId) -> Watched {
        let mut families = self.lock();
        let noted = [families.recent.get(&family).cloned(), families.before.get(&family).cloned()];
        let watch = families.watched.entry(family).or_default();
        watch.streams += 1;
        for known in noted.into_iter().flatten() {
            fresher(&mut watch.freshest, &known);
        }
        Watched { family, renewals: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresher(freshest: &mut Option<Arc<CachedToken>>, known: &Arc<CachedToken>) {
    if freshest.as_ref().is_none_or(|freshest| freshest.token.expires < known.token.expires) {
        *freshest = Some(known.clone());
    }
}

/// One stream's interest in a family.
pub struct Watched {
    family: TokenId,
    renewals: Arc<Renewals>,
}

impl Watched {
    pub fn freshest(&self) -> Option<Arc<CachedToken>> {
        self.renewals.lock().watched.get(&self.family)?.freshest.clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut families = self.renewals.lock();
        let Some(watch) = families.watched.get_mut(&self.family) else { return };
        watch.streams -= 1;
        if watch.streams == 0 {
            families.watched.remove(&self.family);
        }
    }
}
