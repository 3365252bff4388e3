//! The limit of bad signatures, and the client that each is counted for.
//!
//! A check of a signature costs more than the rest of a request, so bad ones are limited. A client that sends its own
//! token is counted by its address. A resource server introspects the tokens of its clients: those are counted for the
//! resource server in another limiter, so that a client with forged tokens cannot use up the limit of the address that
//! all its requests come from.

use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::limiter::{Key, Limiter, Rate};
use crate::types::clock::Uptime;
use crate::types::limit::Limit;
use crate::types::reject::{Reason, Reject};

/// All workers share it: it is used only for tokens that are not cached, and a client must not get a limit for each
/// worker.
pub struct BadSignatures {
    addresses: Arc<Limiter>,
    introspection: Arc<Limiter>,
    /// False: see [`BadSignatures::without_counting`].
    counts: bool,
}

/// The client that a bad signature is counted for.
#[derive(Clone, Copy)]
pub struct Payer<'r> {
    limiter: &'r Limiter,
    key: Key,
    /// For the log.
    excess: &'static str,
    /// See [`Reject::limit`].
    limit: Option<Limit>,
    counts: bool,
}

impl BadSignatures {
    /// `addresses`: `limits.bad_signatures`. `introspection`: `limits.introspected_bad_signatures`. Each of the
    /// `workers` can check one signature at the same time.
    pub fn new(addresses: Rate, introspection: Rate, workers: usize) -> Self {
        let [addresses, introspection] =
            [addresses, introspection].map(|rate| Arc::new(Limiter::new(rate).with_overdraft(workers)));
        BadSignatures { addresses, introspection, counts: true }
    }

    /// With the same limits and counts, to which it adds nothing. For `bearward explain`.
    pub fn without_counting(&self) -> Self {
        BadSignatures { addresses: self.addresses.clone(), introspection: self.introspection.clone(), counts: false }
    }

    /// For a token that authenticates the client itself.
    pub fn of_address(&self, client: IpAddr) -> Payer<'_> {
        let excess = "too many bad signatures from this address";
        Payer { limiter: &self.addresses, key: client.into(), excess, limit: None, counts: self.counts }
    }

    /// For a token that an authenticated caller introspects.
    pub fn of_introspection(&self, caller: Key) -> Payer<'_> {
        let excess = "this caller introspects too many bad signatures";
        let limit = Some(Limit::IntrospectedBadSignatures);
        Payer { limiter: &self.introspection, key: caller, excess, limit, counts: self.counts }
    }
}

impl Payer<'_> {
    /// Rejects a token before its signature is checked if too many were bad.
    pub fn check(&self, now: Uptime) -> Result<(), Reject> {
        let Some(wait) = self.limiter.retry_after(self.key, now) else { return Ok(()) };
        Err(Reject::new(Reason::RateLimited, self.excess).of_limit(self.limit).with_retry_after(wait))
    }

    /// As [`Payer::check`], and counts a bad signature before it is known to be one, so that no client can have more
    /// checks in flight than its limit. Call [`Payer::give_back`] if it was none.
    pub fn reserve(&self, now: Uptime) -> Result<(), Reject> {
        self.check(now)?;
        self.count(now);
        Ok(())
    }

    /// Counts a bad signature.
    pub fn count(&self, now: Uptime) {
        if self.counts {
            self.limiter.take(self.key, now);
        }
    }

    /// Takes back what was counted, because it was none.
    pub fn give_back(&self) {
        if self.counts {
            self.limiter.give_back(self.key);
        }
    }
}
