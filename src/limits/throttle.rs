//! How often tokens may be asked for: for one login, from one address, and in vain from one address. In bounded memory.
//!
//! Nobody can lock out somebody else. A login is counted by its genuine refresh tokens alone, as whoever sees an access token
//! knows its name; and whoever shows a good access token is not stopped by what others at the same address failed with.

use std::net::IpAddr;
use std::time::Duration;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// `[throttle]`; `None` for what is not limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub refreshes: Option<Rate>,
    pub calls: Option<Rate>,
    pub failures: Option<Rate>,
}

/// One for the whole process: its calls are few, and an address must not have as many chances as there are workers.
pub struct Throttle {
    refreshes: Option<Limiter>,
    calls: Option<Limiter>,
    failures: Option<Limiter>,
}

impl Throttle {
    pub fn new(settings: &Settings) -> Self {
        let [refreshes, calls, failures] =
            [settings.refreshes, settings.calls, settings.failures].map(|rate| rate.map(Limiter::new));
        Throttle { refreshes, calls, failures }
    }

    /// Counts a call on tokens, and refuses it if its address has made too many.
    pub fn call(&self, address: IpAddr, now: UnixTime) -> Result<(), Reject> {
        let wait = self.calls.as_ref().and_then(|calls| calls.take_if_any(address, now).err());
        or_limited(wait, Reason::AddressLimited)
    }

    /// Refuses a call that needs no access token if too many from its address were in vain: a token or a password may be
    /// guessed here.
    pub fn guess(&self, address: IpAddr, now: UnixTime) -> Result<(), Reject> {
        let wait = self.failures.as_ref().and_then(|failures| failures.wait(address, now));
        or_limited(wait, Reason::FailuresLimited)
    }

    /// A call was in vain.
    pub fn failed(&self, address: IpAddr, now: UnixTime) {
        if let Some(failures) = &self.failures {
            failures.take(address, now);
        }
    }

    /// As [`Throttle::failed`], if the client is to blame for the answer.
    pub fn answered<T>(&self, answer: &Result<T, Reject>, address: IpAddr, now: UnixTime) {
        if let Err(reject) = answer
            && matches!(reject.reason.status().as_u16(), 400 | 401 | 403 | 404)
        {
            self.failed(address, now);
        }
    }

    /// Refuses a refresh if there were too many of this login.
    pub fn refresh(&self, family: TokenId, now: UnixTime) -> Result<(), Reject> {
        let wait = self.refreshes.as_ref().and_then(|refreshes| refreshes.wait(family, now));
        or_limited(wait, Reason::FamilyLimited)
    }

    /// A genuine refresh token of this login was shown.
    pub fn refreshed(&self, family: TokenId, now: UnixTime) {
        if let Some(refreshes) = &self.refreshes {
            refreshes.take(family, now);
        }
    }
}

fn or_limited(wait: Option<Duration>, reason: Reason) -> Result<(), Reject> {
    match wait {
        None => Ok(()),
        Some(wait) => Err(Reject { retry_after: Some(wait), ..Reject::from(reason) }),
    }
}
