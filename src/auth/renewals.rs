//! The newest token seen of each family that has open streams.
//!
//! A client that refreshes keeps its streams open by using the new token on a request. A new token is verified once,
//! and that is where it is recorded here. Known tokens, which are the hot path, never reach this module.
//!
//! No client refreshes an API key or the handle of a login: the gateway reads them again when a request would have to
//! (`stream_reads`), and records what it finds. That also shows which rights were lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::auth::token_cache::CachedToken;
use crate::tokens::credential_kind::CredentialKind;
use crate::types::clock::{UnixTime, Uptime};
use crate::types::ids::TokenId;
use crate::types::reject::Reason;

/// How long, at least, the token of a family without open streams is remembered: the client may use it a moment before
/// the gateway registers the stream.
const RECENT: Duration = Duration::from_secs(2);

/// Maximum number of such tokens. If a token is not remembered, its stream ends when the token that opened it expires.
const MAX_RECENT: usize = 8_192;

/// Shared by all workers.
#[derive(Default)]
pub struct Renewals {
    families: Mutex<Families>,
    /// How often a family with streams got other rights, or has ended.
    changes: AtomicU64,
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
    /// Never `None` for an API key or a handle.
    newest: Option<Arc<CachedToken>>,
    /// Why a new request would be rejected. Only for an API key or a handle.
    ended: Option<Reason>,
    is_being_read: bool,
    /// It must be read again, whatever is known.
    is_outdated: bool,
    /// It is not read again before.
    not_before: UnixTime,
}

impl Renewals {
    /// Records a token of this family that was just verified, or read from the store.
    pub fn record(&self, family: TokenId, known: &Arc<CachedToken>, now: Uptime) {
        let mut families = self.families.lock();
        if let Some(watch) = families.watched.get_mut(&family) {
            return self.record_watched(watch, known);
        }
        if now.since(families.recent_since) >= RECENT {
            families.older = std::mem::take(&mut families.recent);
            families.recent_since = now;
        }
        if families.recent.len() < MAX_RECENT {
            let before = families.recent.remove(&family).filter(|before| !is_newer(known, before));
            families.recent.insert(family, before.unwrap_or_else(|| known.clone()));
        }
    }

    fn record_watched(&self, watch: &mut Watch, known: &Arc<CachedToken>) {
        if watch.newest.as_ref().is_some_and(|newest| !is_newer(known, newest)) {
            return;
        }
        let before = watch.newest.replace(known.clone());
        watch.ended = None;
        if before.is_some_and(|before| !known.token.has_rights_of(&before.token)) {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Remembers the family's newest token until the returned guard is dropped. `opened_by`: that of the stream.
    pub fn watch(self: &Arc<Self>, family: TokenId, opened_by: &Arc<CachedToken>) -> FamilyWatch {
        let mut families = self.families.lock();
        let remembered = [families.recent.get(&family).cloned(), families.older.get(&family).cloned()];
        let watch = families.watched.entry(family).or_default();
        watch.streams += 1;
        if watch.newest.is_none() && opened_by.kind.is_of_store() {
            watch.newest = Some(opened_by.clone());
        }
        remembered.iter().flatten().for_each(|known| self.record_watched(watch, known));
        FamilyWatch { family, renewals: self.clone() }
    }

    /// Grows when a family with streams gets other rights, or has ended.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The API keys and handles with open streams that must be read again, because a request would read them. Each is
    /// returned once until its [`StreamRead`] is dropped.
    pub fn due(self: &Arc<Self>, now: UnixTime) -> Vec<StreamRead> {
        let mut families = self.families.lock();
        let due = families.watched.iter_mut().filter_map(|(id, watch)| {
            let kind = watch.newest.as_ref()?.kind;
            watch.begin_read(now).then(|| StreamRead { id: *id, kind, renewals: self.clone() })
        });
        due.collect()
    }

    /// Has the API keys and handles among these families read again at once, if they have streams.
    pub fn read_again(&self, families: &[TokenId]) {
        let mut known = self.families.lock();
        for id in families {
            if let Some(watch) = known.watched.get_mut(id) {
                watch.is_outdated = true;
            }
        }
    }
}

impl Watch {
    /// Returns false if it need not be read now.
    fn begin_read(&mut self, now: UnixTime) -> bool {
        let Some(newest) = self.newest.as_ref().filter(|newest| newest.kind.is_of_store()) else { return false };
        let is_due = newest.read_again_at() <= now && self.not_before <= now;
        if self.is_being_read || self.ended.is_some() || !(is_due || self.is_outdated) {
            return false;
        }
        self.is_being_read = true;
        self.is_outdated = false;
        self.not_before = UnixTime::default();
        true
    }
}

/// Returns true if `known` says more than `before` about the family that both are of. The rights of a login are those
/// of its newest version. A JWT carries its streams the longer, the later it expires.
fn is_newer(known: &CachedToken, before: &CachedToken) -> bool {
    if known.kind.is_of_store() {
        return known.token.login_version >= before.token.login_version;
    }
    before.token.expires < known.token.expires
}

/// One stream's interest in the newer tokens of its family.
pub struct FamilyWatch {
    family: TokenId,
    renewals: Arc<Renewals>,
}

impl FamilyWatch {
    /// The newest token, or why the family has ended.
    pub fn newest(&self) -> Result<Option<Arc<CachedToken>>, Reason> {
        let families = self.renewals.families.lock();
        let Some(watch) = families.watched.get(&self.family) else { return Ok(None) };
        watch.ended.map_or_else(|| Ok(watch.newest.clone()), Err)
    }
}

impl Drop for FamilyWatch {
    fn drop(&mut self) {
        let mut families = self.renewals.families.lock();
        let Some(watch) = families.watched.get_mut(&self.family) else { return };
        watch.streams -= 1;
        if watch.streams == 0 {
            families.watched.remove(&self.family);
        }
    }
}

/// An API key or a handle with open streams that is being read. Dropping it lets it be read again.
pub struct StreamRead {
    pub id: TokenId,
    pub kind: CredentialKind,
    renewals: Arc<Renewals>,
}

impl StreamRead {
    pub fn record(&self, known: CachedToken, now: Uptime) {
        self.renewals.record(self.id, &Arc::new(known), now);
    }

    /// Ends the streams: a new request would be rejected for this reason.
    pub fn end(&self, reason: Reason) {
        if let Some(watch) = self.renewals.families.lock().watched.get_mut(&self.id) {
            watch.ended = Some(reason);
        }
        self.renewals.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until `time` with the next attempt, because the provider or the store fails.
    pub fn put_off(&self, time: UnixTime) {
        if let Some(watch) = self.renewals.families.lock().watched.get_mut(&self.id) {
            watch.not_before = time;
        }
    }
}

impl Drop for StreamRead {
    fn drop(&mut self) {
        if let Some(watch) = self.renewals.families.lock().watched.get_mut(&self.id) {
            watch.is_being_read = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::jwt::{SignedInAt, VerifiedToken};

    const START: Uptime = Uptime::from_secs(0);
    const NOW: UnixTime = UnixTime::from_secs(100);
    const MICROSECOND: Duration = Duration::from_micros(1);

    fn family(number: usize) -> TokenId {
        TokenId::from_bytes((number as u128).to_be_bytes())
    }

    fn expiring(secs: u64) -> Arc<CachedToken> {
        let mut token = VerifiedToken::with_subject("alice".into());
        token.expires = UnixTime::from_secs(secs);
        Arc::new(CachedToken::new("a.b.c", token, Vec::new(), 0))
    }

    /// A handle with this scope, that must be read again at `until`.
    fn handle(scope: &str, login_version: u64, until: UnixTime) -> Arc<CachedToken> {
        let mut token = VerifiedToken::with_subject("alice".into());
        let at = SignedInAt { provider: "main".into(), issuer: "https://login.example".into() };
        token.kind = CredentialKind::Handle;
        token.provider = Some(Arc::new(at));
        token.scope = vec![scope.to_owned()];
        token.login_version = login_version;
        Arc::new(CachedToken::new("", token, Vec::new(), 0).usable_until(until))
    }

    fn newest(renewals: &Arc<Renewals>, number: usize) -> Option<u64> {
        let watch = renewals.watch(family(number), &expiring(1));
        watch.newest().expect("not ended").map(|known| known.token.expires.as_secs())
    }

    fn due(renewals: &Arc<Renewals>, now: UnixTime) -> Vec<TokenId> {
        renewals.due(now).iter().map(|read| read.id).collect()
    }

    #[test]
    fn a_family_without_streams_is_remembered_for_a_moment() {
        let renewals = Arc::new(Renewals::default());
        renewals.record(family(1), &expiring(60), START);
        renewals.record(family(2), &expiring(70), START + (RECENT - MICROSECOND));
        assert_eq!(renewals.families.lock().older.len(), 0);
        renewals.record(family(3), &expiring(80), START + RECENT);
        assert_eq!([1, 2, 3].map(|number| newest(&renewals, number)), [Some(60), Some(70), Some(80)]);
        renewals.record(family(4), &expiring(90), START + 2 * RECENT);
        assert_eq!([1, 2, 3, 4].map(|number| newest(&renewals, number)), [None, None, Some(80), Some(90)]);
    }

    #[test]
    fn families_without_streams_are_remembered_up_to_a_limit() {
        let renewals = Arc::new(Renewals::default());
        (0..=MAX_RECENT).for_each(|number| renewals.record(family(number), &expiring(60), START));
        let last_two = [MAX_RECENT - 1, MAX_RECENT].map(|number| newest(&renewals, number));
        assert_eq!((renewals.families.lock().recent.len(), last_two), (MAX_RECENT, [Some(60), None]));
    }

    #[test]
    fn the_freshest_token_counts_in_whatever_order_they_come() {
        let renewals = Arc::new(Renewals::default());
        let first = expiring(60);
        let record = |known: &Arc<CachedToken>| renewals.record(family(1), known, START);
        [first.clone(), expiring(60), expiring(50)].iter().for_each(record);
        let watch = renewals.watch(family(1), &expiring(1));
        let known = watch.newest().expect("not ended");
        assert!(known.is_some_and(|known| Arc::ptr_eq(&known, &first)));
        [expiring(70), expiring(65)].iter().for_each(record);
        assert_eq!(newest(&renewals, 1), Some(70));
    }

    #[test]
    fn a_family_is_watched_until_its_last_stream_ends() {
        let renewals = Arc::new(Renewals::default());
        let watches = [(); 3].map(|()| renewals.watch(family(1), &expiring(1)));
        let [first, second, last] = watches;
        drop((first, second));
        renewals.record(family(1), &expiring(60), START);
        assert!(last.newest().is_ok_and(|known| known.is_some()) && renewals.families.lock().recent.is_empty());
        drop(last);
        assert!(renewals.families.lock().watched.is_empty());
    }

    #[test]
    fn what_requests_would_read_is_read_once_and_again_in_time() {
        let renewals = Arc::new(Renewals::default());
        let jwt = renewals.watch(family(1), &expiring(1));
        let later = NOW + RECENT;
        let login = renewals.watch(family(2), &handle("a", 0, NOW));
        assert_eq!(due(&renewals, NOW - RECENT), []);
        let reads = renewals.due(NOW);
        assert_eq!((reads.len(), reads[0].id, due(&renewals, NOW)), (1, family(2), vec![]), "it is being read");
        reads[0].put_off(later);
        drop(reads);
        assert_eq!((due(&renewals, later - RECENT), due(&renewals, later)), (vec![], vec![family(2)]));
        renewals.record(family(2), &handle("a", 0, later + RECENT), START);
        assert_eq!(due(&renewals, later), []);
        // A provider has reported a change, while the login is read, too.
        for _ in 0..2 {
            renewals.read_again(&[family(1), family(2)]);
            let reads = renewals.due(later);
            assert_eq!(reads.len(), 1);
            renewals.read_again(&[family(2)]);
            drop(reads);
            assert_eq!(due(&renewals, later), [family(2)]);
        }
        drop((jwt, login));
        assert_eq!(due(&renewals, UnixTime::MAX), []);
    }

    #[test]
    fn the_rights_of_a_login_are_those_of_its_newest_version() {
        let renewals = Arc::new(Renewals::default());
        let login = renewals.watch(family(1), &handle("a", 1, NOW));
        let scope = || login.newest().map(|known| known.expect("known").token.scope.concat());
        for (known, expected, changes) in [
            (handle("a", 1, NOW), "a", 0),
            (handle("b", 2, NOW), "b", 1),
            (handle("a", 1, NOW), "b", 1),
            (handle("b", 3, NOW), "b", 1),
        ] {
            renewals.record(family(1), &known, START);
            assert_eq!((scope(), renewals.changes()), (Ok(expected.to_owned()), changes));
        }
        renewals.due(NOW)[0].end(Reason::BadSession);
        assert_eq!((scope(), renewals.changes(), due(&renewals, NOW)), (Err(Reason::BadSession), 2, vec![]));
    }
}
