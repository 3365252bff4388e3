//! Logins at providers: what the gateway keeps of them beside their families. No I/O, and the same for every store.
//!
//! The tokens of the provider are sealed with a root secret. Several gateways may want to refresh them at the same
//! time, but a provider with rotating refresh tokens accepts only one: a **lease** makes the others wait. The version
//! counts the refreshes, so that the response to a late holder of the lease is kept if there is no newer one.
//!
//! When the family has ended, the provider is to be told. A login is returned for that until [`forget_login`] removes
//! it, for at most a day of attempts. A gateway that is stopped makes none. A login that no gateway tries, because none
//! has a provider of its name, is deleted a day after the store has noticed its end.
//!
//! [`forget_login`]: crate::store::ProviderLoginStore::forget_login

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// How long a login may stay unclaimed: the browser that began it follows a redirect in seconds.
pub const CLAIM_TIME: Duration = Duration::from_mins(5);
/// For how long the gateway tries to tell the provider of the end of a login.
pub(super) const TELL_TIME: Duration = Duration::from_hours(24);
/// For how much of [`TELL_TIME`] one attempt counts at most.
pub(super) const ATTEMPT_TIME: Duration = Duration::from_hours(1);
/// A login that no gateway has tried for this long, while this one ran, is one that none will try.
const UNTRIED_TIME: Duration = Duration::from_hours(6);
/// A gateway that has not swept for this long was stopped, or its machine slept.
const SWEEP_PAUSE: Duration = Duration::from_hours(1);
/// How long a login that is to be told is left to the caller that got it, before it is returned again.
pub(super) const TELL_RETRY: Duration = Duration::from_mins(1);
/// The `check_at` of a login that has ended: at once. It is no date, so its age says nothing.
pub(super) const AT_ONCE: UnixTime = UnixTime::from_millis(0);

/// A login at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLogin {
    /// `provider.name`
    pub provider: String,
    /// The number of the root secret that seals the tokens.
    pub root: u8,
    /// The encrypted tokens of the provider. Unlike any other sealed text.
    pub sealed: Vec<u8>,
    /// How often the tokens were refreshed. 0 for a new login.
    pub version: u64,
    /// When the tokens should be refreshed.
    pub due: UnixTime,
    /// Whether the browser has used its handle.
    pub claimed: bool,
}

/// Logins with a family that has ended, and their tokens.
pub type EndedLogins = Vec<(TokenId, ProviderLogin)>;

/// The outcome of [`ProviderLoginStore::lease_login`](crate::store::ProviderLoginStore::lease_login).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginLease {
    /// The caller may refresh the tokens, until the time that it named.
    Granted,
    /// Another one refreshes them.
    Held { until: UnixTime },
    /// They were refreshed since the caller has read them.
    Changed(ProviderLogin),
    /// The family has ended.
    Ended,
}

/// What a refresh of the tokens changes. It is no use of the family, and does not move its idle time: a stream may
/// have caused it.
#[derive(Clone, Debug)]
pub struct RefreshedLogin {
    /// With a newer version. `claimed` does not count.
    pub login: ProviderLogin,
    /// `None`: only the tokens are written, before the rest of the response counts. The family, the lease, and the time
    /// at which the login is due stay as they are.
    pub renewed: Option<Renewed>,
}

/// What a refresh changes beside the tokens.
#[derive(Clone, Debug)]
pub struct Renewed {
    /// Of the family.
    pub scope: String,
    /// Of the family.
    pub claims: Map<String, Value>,
    /// When the login was due before, as the caller has read it. If it is due at another time now, something has
    /// changed at the provider since, and it stays due then.
    pub due_before: UnixTime,
}

/// The outcome of [`ProviderLoginStore::save_login`](crate::store::ProviderLoginStore::save_login).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedLogin {
    Saved,
    /// The store has this version or a newer one. Nothing was written.
    Newer,
    /// The family has ended. The tokens are only kept to tell the provider.
    Ended,
    /// The family has ended, and its login was deleted. Nothing was written: the caller has the only copy.
    Forgotten,
}

/// A login as every store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLogin {
    /// The family.
    pub id: TokenId,
    /// Of the family.
    pub subject: String,
    /// When the family was created.
    pub began_at: UnixTime,
    pub login: ProviderLogin,
    pub lease: Option<Lease>,
    /// When to look whether the family has ended, without a revocation.
    pub check_at: UnixTime,
    /// When the login was first returned because its family has ended, and later by each time without attempts.
    pub ended_at: Option<UnixTime>,
}

/// Since when this gateway has swept the logins without a pause.
#[derive(Default)]
pub(super) struct SweepTimes(Mutex<Option<SweepTime>>);

#[derive(Clone, Copy)]
struct SweepTime {
    since: UnixTime,
    last: UnixTime,
}

impl SweepTimes {
    /// A sweep begins. Logins that were last tried before the returned time will not be tried any more.
    pub(super) fn untried_since(&self, now: UnixTime) -> UnixTime {
        let mut times = self.0.lock();
        let goes_on = times.filter(|times| now.since(times.last) <= SWEEP_PAUSE);
        let since = goes_on.map_or(now, |times| times.since);
        *times = Some(SweepTime { since, last: now });
        if now.since(since) < UNTRIED_TIME { UnixTime::default() } else { now - UNTRIED_TIME }
    }
}

/// The right to refresh the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub holder: [u8; 16],
    pub until: UnixTime,
}

/// How long the lease of a process that was killed keeps others from a login. Shorter than the time for which
/// providers accept a spent refresh token: Okta's default is 30 s.
pub const LOGIN_LEASE: Duration = Duration::from_secs(15);

impl Lease {
    /// One that ends later than any lease can is of before the clock was set back.
    fn is_held(self, now: UnixTime) -> bool {
        now < self.until && self.until <= now + LOGIN_LEASE + LEASE_TOLERANCE
    }
}

/// How far the clocks of two gateways can be from each other.
const LEASE_TOLERANCE: Duration = Duration::from_secs(2);

/// What [`ProviderLoginStore::save_login`](crate::store::ProviderLoginStore::save_login) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Save {
    Write,
    /// Only for the provider: the family has ended.
    Keep,
    /// An earlier attempt of this call has written it.
    Written,
    Nothing(SavedLogin),
}

impl StoredLogin {
    pub(super) fn begun(family: &Family, login: ProviderLogin) -> Self {
        let check_at = if login.claimed { ends_at(family) } else { family.created_at + CLAIM_TIME };
        let id = family.id;
        let subject = family.subject.clone();
        let began_at = family.created_at;
        StoredLogin { id, subject, began_at, login, lease: None, check_at, ended_at: None }
    }

    /// `version`: that of the tokens that the caller has.
    pub(super) fn lease(&self, is_live: bool, version: u64, holder: [u8; 16], now: UnixTime) -> LoginLease {
        if !is_live {
            return LoginLease::Ended;
        }
        if self.login.version != version {
            return LoginLease::Changed(self.login.clone());
        }
        match self.lease {
            Some(lease) if lease.holder != holder && lease.is_held(now) => LoginLease::Held { until: lease.until },
            _ => LoginLease::Granted,
        }
    }

    /// When the login is due after this refresh. The provider may have responded before a change that it reported
    /// meanwhile.
    pub(super) fn next_due(&self, next: &ProviderLogin, renewed: &Renewed) -> UnixTime {
        if self.login.due == renewed.due_before { next.due } else { self.login.due.min(next.due) }
    }

    /// The caller that refreshed the tokens has the only ones that work, also if its lease has ended.
    pub(super) fn save(&self, is_live: bool, next: &ProviderLogin) -> Save {
        let is_newer = next.version > self.login.version;
        match is_live {
            true if is_newer => Save::Write,
            true if *next.sealed == self.login.sealed => Save::Written,
            true => Save::Nothing(SavedLogin::Newer),
            false if is_newer => Save::Keep,
            false => Save::Nothing(SavedLogin::Ended),
        }
    }
}

/// When the family ends by itself.
pub(super) fn ends_at(family: &Family) -> UnixTime {
    family.idle_expiry.min(family.absolute_expiry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn login(version: u64) -> ProviderLogin {
        let sealed = vec![version.to_le_bytes()[0]];
        ProviderLogin { provider: "a".into(), root: 1, sealed, version, due: NOW, claimed: false }
    }

    fn stored(version: u64, lease: Option<Lease>) -> StoredLogin {
        StoredLogin { lease, ..StoredLogin::begun(&Family::sample(NOW), login(version)) }
    }

    #[test]
    fn a_gateway_that_was_stopped_gives_no_login_up() {
        let times = SweepTimes::default();
        let begun = UnixTime::from_secs(1_000_000);
        let hour = Duration::from_hours(1);
        for hours in 0..6 {
            assert_eq!(times.untried_since(begun + hour * hours), UnixTime::default(), "{hours}");
        }
        assert_eq!(times.untried_since(begun + hour * 6), begun);
        assert_eq!(times.untried_since(begun + hour * 7), begun + hour);
        let after_pause = begun + hour * 8 + SECOND;
        assert_eq!(times.untried_since(after_pause), UnixTime::default());
        assert_eq!(times.untried_since(begun), UnixTime::default(), "the clock was set back");
    }

    #[test]
    fn an_unclaimed_login_is_looked_at_after_five_minutes() {
        assert_eq!(stored(0, None).check_at, NOW + Duration::from_mins(5));
        let family = Family { idle_expiry: NOW + SECOND, ..Family::sample(NOW) };
        let claimed = ProviderLogin { claimed: true, ..login(0) };
        assert_eq!(StoredLogin::begun(&family, claimed).check_at, NOW + SECOND);
    }

    #[test]
    fn a_lease_is_exclusive_until_its_end() {
        let lease = Some(Lease { holder: [1; 16], until: NOW + SECOND });
        for (lease, holder, now, expected) in [
            (None, [2; 16], NOW, LoginLease::Granted),
            (lease, [2; 16], NOW, LoginLease::Held { until: NOW + SECOND }),
            (lease, [1; 16], NOW, LoginLease::Granted),
            (lease, [2; 16], NOW + SECOND, LoginLease::Granted),
        ] {
            assert_eq!(stored(3, lease).lease(true, 3, holder, now), expected);
        }
        assert_eq!(stored(3, lease).lease(true, 2, [2; 16], NOW), LoginLease::Changed(login(3)));
        assert_eq!(stored(3, lease).lease(false, 3, [1; 16], NOW), LoginLease::Ended);
    }

    #[test]
    fn the_newest_tokens_are_kept() {
        for (is_live, next, expected) in [
            (true, login(4), Save::Write),
            // The database was rolled back.
            (true, login(6), Save::Write),
            (true, login(3), Save::Written),
            (true, ProviderLogin { sealed: vec![9], ..login(3) }, Save::Nothing(SavedLogin::Newer)),
            (true, login(2), Save::Nothing(SavedLogin::Newer)),
            (false, login(4), Save::Keep),
            (false, login(3), Save::Nothing(SavedLogin::Ended)),
        ] {
            assert_eq!(stored(3, None).save(is_live, &next), expected, "{is_live} {next:?}");
        }
    }
}
