//! `[throttle]`: how often tokens may be refreshed and revoked, by login and by address. In bounded memory.
//!
//! One client cannot lock out another. A login is counted by its genuine refresh tokens only, because its id is visible
//! in every access token. A client with a valid access token is not stopped by failures of others at its address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Clock;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub refreshes: Option<Rate>,
    pub calls: Option<Rate>,
    pub failures: Option<Rate>,
}

/// Shared by all workers: token calls are few, and an address must not get one allowance for each worker.
pub struct Throttle {
    refreshes: Option<Limiter>,
    calls: Option<Limiter>,
    failures: Option<Limiter>,
    clock: Arc<dyn Clock>,
}

impl Throttle {
    pub fn new(settings: &Settings, clock: Arc<dyn Clock>) -> Self {
        let [refreshes, calls, failures] =
            [settings.refreshes, settings.calls, settings.failures].map(|rate| rate.map(Limiter::new));
        Throttle { refreshes, calls, failures, clock }
    }

    /// Counts a token call, and rejects it if its address has made too many.
    pub fn count_call(&self, address: IpAddr) -> Result<(), Reject> {
        let retry_after = self.calls.as_ref().and_then(|calls| calls.try_take(address, self.clock.uptime()).err());
        or_limited(retry_after, Reason::AddressLimited)
    }

    /// Rejects a call that needs no access token if too many from its address have failed: such a call could guess a
    /// token or a password.
    pub fn check_failures(&self, address: IpAddr) -> Result<(), Reject> {
        let retry_after =
            self.failures.as_ref().and_then(|failures| failures.retry_after(address, self.clock.uptime()));
        or_limited(retry_after, Reason::FailuresLimited)
    }

    /// Begins a call that could guess a token or a password. It counts as failed until it has ended, so that many
    /// guesses at once are no more than one after the other. Rejects it as [`Throttle::check_failures`] does.
    pub fn begin_attempt(self: &Arc<Self>, address: IpAddr) -> Result<Attempt, Reject> {
        let retry_after =
            self.failures.as_ref().and_then(|failures| failures.try_take(address, self.clock.uptime()).err());
        or_limited(retry_after, Reason::FailuresLimited)?;
        Ok(Attempt { throttle: self.clone(), address })
    }

    /// Counts a failed call.
    pub fn count_outcome<T>(&self, outcome: &Result<T, Reject>, address: IpAddr) {
        if let Some(failures) = self.failures.as_ref().filter(|_| is_failure(outcome)) {
            failures.take(address, self.clock.uptime());
        }
    }

    /// Rejects a refresh if this login had too many.
    pub fn check_refreshes(&self, family: TokenId) -> Result<(), Reject> {
        let retry_after =
            self.refreshes.as_ref().and_then(|refreshes| refreshes.retry_after(family, self.clock.uptime()));
        or_limited(retry_after, Reason::FamilyLimited)
    }

    /// Counts a genuine refresh token of this login.
    pub fn count_refresh(&self, family: TokenId) {
        if let Some(refreshes) = &self.refreshes {
            refreshes.take(family, self.clock.uptime());
        }
    }
}

/// A call that could guess a token or a password. If it is dropped, it counts as failed: a client that disconnects may
/// have made its guess.
#[must_use]
pub struct Attempt {
    throttle: Arc<Throttle>,
    address: IpAddr,
}

impl Attempt {
    /// Ends the call. Only a failed one counts.
    pub fn end(self, failed: bool) {
        if let Some(failures) = self.throttle.failures.as_ref().filter(|_| !failed) {
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
        Some(wait) => Err(Reject { retry_after: Some(wait), ..Reject::from(reason) }),
    }
}
