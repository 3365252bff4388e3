//! `[throttle]`: how often tokens may be refreshed and revoked, by login and by address. In bounded memory.
//!
//! One client cannot lock out another. A login is counted by its genuine refresh tokens only, because its id is visible
//! in every access token. A client with a valid access token is not stopped by failures of others at its address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Clock;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThrottleSettings {
    pub refreshes: Option<Rate>,
    pub calls: Option<Rate>,
    pub failures: Option<Rate>,
}

/// Shared by all workers: token calls are few, and an address must not get one allowance for each worker.
pub struct Throttle {
    limits: ArcSwap<Limits>,
    clock: Arc<dyn Clock>,
    /// False: it limits as the others have counted.
    counts: bool,
}

/// A reload replaces a limit that has changed. The others keep their counts.
#[derive(Clone)]
struct Limits {
    settings: ThrottleSettings,
    refreshes: Option<Arc<Limiter>>,
    calls: Option<Arc<Limiter>>,
    failures: Option<Arc<Limiter>>,
}

impl Limits {
    fn new(settings: ThrottleSettings) -> Self {
        let [refreshes, calls, failures] = [settings.refreshes, settings.calls, settings.failures]
            .map(|rate| rate.map(|rate| Arc::new(Limiter::new(rate))));
        Limits { settings, refreshes, calls, failures }
    }
}

impl Throttle {
    pub fn new(settings: &ThrottleSettings, clock: Arc<dyn Clock>) -> Self {
        Throttle { limits: ArcSwap::from_pointee(Limits::new(*settings)), clock, counts: true }
    }

    /// Returns a throttle that limits as this one, and counts nothing.
    pub fn without_counting(&self) -> Self {
        Throttle { limits: ArcSwap::new(self.limits.load_full()), clock: self.clock.clone(), counts: false }
    }

    /// Puts these limits in force. A limit that has changed starts with its full burst.
    pub fn reload(&self, settings: &ThrottleSettings) {
        let old = self.limits.load_full();
        let mut new = Limits::new(*settings);
        if old.settings.refreshes == settings.refreshes {
            new.refreshes.clone_from(&old.refreshes);
        }
        if old.settings.calls == settings.calls {
            new.calls.clone_from(&old.calls);
        }
        if old.settings.failures == settings.failures {
            new.failures.clone_from(&old.failures);
        }
        self.limits.store(Arc::new(new));
    }

    /// Counts a token call, and rejects it if its address has made too many.
    pub fn count_call(&self, address: IpAddr) -> Result<(), Reject> {
        let limits = self.limits.load();
        let Some(calls) = &limits.calls else { return Ok(()) };
        let now = self.clock.uptime();
        let retry_after =
            if self.counts { calls.try_take(address, now).err() } else { calls.retry_after(address, now) };
        or_limited(retry_after, Reason::AddressLimited)
    }

    /// Rejects a call that needs no access token if too many from its address have failed: such a call could guess a
    /// token or a password.
    pub fn check_failures(&self, address: IpAddr) -> Result<(), Reject> {
        let retry_after = self
            .limits
            .load()
            .failures
            .as_ref()
            .and_then(|failures| failures.retry_after(address, self.clock.uptime()));
        or_limited(retry_after, Reason::FailuresLimited)
    }

    /// Begins a call that could guess a token or a password. It counts as failed until it has ended, so that many
    /// guesses at once are no more than one after the other. Rejects it as [`Throttle::check_failures`] does.
    pub fn begin_attempt(&self, address: IpAddr) -> Result<Attempt, Reject> {
        if !self.counts {
            self.check_failures(address)?;
            return Ok(Attempt { failures: None, address });
        }
        let failures = self.limits.load().failures.clone();
        let retry_after = failures.as_ref().and_then(|failures| failures.try_take(address, self.clock.uptime()).err());
        or_limited(retry_after, Reason::FailuresLimited)?;
        Ok(Attempt { failures, address })
    }

    /// Counts a failed call.
    pub fn count_outcome<T>(&self, outcome: &Result<T, Reject>, address: IpAddr) {
        if is_failure(outcome) {
            self.count_failure(address);
        }
    }

    /// Counts a failed call. Its response has a form of its own.
    pub fn count_failure(&self, address: IpAddr) {
        let limits = self.limits.load();
        if self.counts
            && let Some(failures) = &limits.failures
        {
            failures.take(address, self.clock.uptime());
        }
    }

    /// Rejects a refresh if this login had too many.
    pub fn check_refreshes(&self, family: TokenId) -> Result<(), Reject> {
        let retry_after = self
            .limits
            .load()
            .refreshes
            .as_ref()
            .and_then(|refreshes| refreshes.retry_after(family, self.clock.uptime()));
        or_limited(retry_after, Reason::FamilyLimited)
    }

    /// Counts a genuine refresh token of this login.
    pub fn count_refresh(&self, family: TokenId) {
        let limits = self.limits.load();
        if self.counts
            && let Some(refreshes) = &limits.refreshes
        {
            refreshes.take(family, self.clock.uptime());
        }
    }
}

/// A call that could guess a token or a password. If it is dropped, it counts as failed: a client that disconnects may
/// have made its guess.
#[must_use]
pub struct Attempt {
    /// The limit against which it counts, also after a reload.
    failures: Option<Arc<Limiter>>,
    address: IpAddr,
}

impl Attempt {
    /// Ends the call. Only a failed one counts.
    pub fn end(self, failed: bool) {
        if !failed && let Some(failures) = self.failures {
            failures.give_back(self.address);
        }
    }
}

/// Returns true if `outcome` is a rejection that the client caused.
pub fn is_failure<T>(outcome: &Result<T, Reject>) -> bool {
    outcome.as_ref().is_err_and(|reject| matches!(reject.reason.status().as_u16(), 400 | 401 | 403 | 404))
}

fn or_limited(retry_after: Option<Duration>, reason: Reason) -> Result<(), Reject> {
    match retry_after {
        None => Ok(()),
        Some(wait) => Err(Reject::from(reason).with_retry_after(wait)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::{UnixTime, Uptime};

    const RATE: Rate = Rate { burst: 2, interval: Duration::from_hours(1) };
    const OFF: ThrottleSettings = ThrottleSettings { refreshes: None, calls: None, failures: None };
    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> UnixTime {
            UnixTime::from_secs(1_000)
        }

        fn uptime(&self) -> Uptime {
            Uptime::from_secs(1_000)
        }
    }

    fn throttle(settings: ThrottleSettings) -> Arc<Throttle> {
        Arc::new(Throttle::new(&settings, Arc::new(StoppedClock)))
    }

    /// The reason and when to try again.
    fn rejected<T>(result: Result<T, Reject>) -> Option<(Reason, Option<Duration>)> {
        result.err().map(|reject| (reject.reason, reject.retry_after()))
    }

    fn limited(reason: Reason) -> Option<(Reason, Option<Duration>)> {
        Some((reason, Some(RATE.interval)))
    }

    fn failed(reason: Reason) -> Result<(), Reject> {
        Err(reason.into())
    }

    #[test]
    fn an_address_makes_a_burst_of_calls() {
        let throttle = throttle(ThrottleSettings { calls: Some(RATE), ..OFF });
        let calls = [ONE, ONE, ONE, OTHER].map(|address| rejected(throttle.count_call(address)));
        assert_eq!(calls, [None, None, limited(Reason::AddressLimited), None]);
    }

    #[test]
    fn only_failures_that_the_client_caused_count() {
        let throttle = throttle(ThrottleSettings { failures: Some(RATE), ..OFF });
        let harmless = [Ok(()), failed(Reason::Internal), failed(Reason::AddressLimited)];
        harmless.iter().cycle().take(30).for_each(|outcome| throttle.count_outcome(outcome, ONE));
        throttle.count_outcome(&failed(Reason::TokenNotFound), ONE);
        assert_eq!(rejected(throttle.check_failures(ONE)), None);
        throttle.count_outcome(&failed(Reason::Expired), ONE);
        assert_eq!(rejected(throttle.check_failures(ONE)), limited(Reason::FailuresLimited));
        assert_eq!(rejected(throttle.check_failures(OTHER)), None);
    }

    #[test]
    fn an_attempt_counts_until_it_has_succeeded() {
        let throttle = throttle(ThrottleSettings { failures: Some(RATE), ..OFF });
        let begin = || throttle.begin_attempt(ONE);
        let first = begin().expect("the first");
        let second = begin().expect("the second");
        assert_eq!(rejected(begin()), limited(Reason::FailuresLimited), "two are in flight");
        first.end(false);
        begin().expect("one has succeeded").end(true);
        assert_eq!(rejected(begin()), limited(Reason::FailuresLimited), "one has failed, one is in flight");
        second.end(false);
        drop(begin().expect("one has failed"));
        assert_eq!(rejected(begin()), limited(Reason::FailuresLimited), "one has failed, one was dropped");
    }

    #[test]
    fn a_login_refreshes_a_burst_of_times() {
        let throttle = throttle(ThrottleSettings { refreshes: Some(RATE), ..OFF });
        let [one, other] = [1, 2].map(|number| TokenId::from_bytes([number; 16]));
        for _ in 0..2 {
            assert_eq!(rejected(throttle.check_refreshes(one)), None);
            throttle.count_refresh(one);
        }
        assert_eq!(rejected(throttle.check_refreshes(one)), limited(Reason::FamilyLimited));
        assert_eq!(rejected(throttle.check_refreshes(other)), None);
    }

    #[test]
    fn one_without_counting_limits_as_the_other_has_counted() {
        let counting = throttle(ThrottleSettings { refreshes: Some(RATE), calls: Some(RATE), failures: Some(RATE) });
        let family = TokenId::from_bytes([1; 16]);
        let dry = counting.without_counting();
        for _ in 0..3 {
            assert_eq!(rejected(dry.count_call(ONE)), None);
            assert_eq!(rejected(dry.check_failures(ONE)), None);
            drop(dry.begin_attempt(ONE).expect("nothing has failed"));
            dry.count_outcome(&failed(Reason::Expired), ONE);
            dry.count_refresh(family);
        }
        for _ in 0..2 {
            assert_eq!(rejected(counting.count_call(ONE)), None);
            counting.count_outcome(&failed(Reason::Expired), ONE);
            counting.count_refresh(family);
        }
        assert_eq!(rejected(dry.count_call(ONE)), limited(Reason::AddressLimited));
        assert_eq!(rejected(dry.begin_attempt(ONE)), limited(Reason::FailuresLimited));
        assert_eq!(rejected(dry.check_refreshes(family)), limited(Reason::FamilyLimited));
    }

    #[test]
    fn without_settings_nothing_is_limited() {
        let throttle = throttle(OFF);
        let family = TokenId::from_bytes([1; 16]);
        for _ in 0..100 {
            throttle.count_outcome(&failed(Reason::TokenNotFound), ONE);
            throttle.count_refresh(family);
            assert!(throttle.count_call(ONE).is_ok() && throttle.check_failures(ONE).is_ok());
            assert!(throttle.check_refreshes(family).is_ok() && throttle.begin_attempt(ONE).is_ok());
        }
    }
}
