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
