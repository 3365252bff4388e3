//! What a stream stands on: the token that opened it, and a fresher one of the same family that carries it on.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::keyring::Keyring;
use crate::auth::renewals::{Renewals, Watched};
use crate::auth::revocations::Revocations;
use crate::auth::token_cache::CachedToken;
use crate::tokens::jwt::Validity;
use crate::tokens::jwt::verify::{is_still_valid, verify};
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::Reason;
use crate::types::trace::Trace;

/// All that can end a token.
#[derive(Clone)]
pub struct TokenChecks {
    pub clock: Arc<dyn Clock>,
    pub revocations: Arc<Revocations>,
    pub keyring: Arc<Keyring>,
    pub renewals: Arc<Renewals>,
}

pub(super) struct TokenBasis {
    opened: Arc<CachedToken>,
    /// The freshest of its family that was seen when the one before it expired.
    carrier: Option<Arc<CachedToken>>,
    /// Of the keyring, when the keys of both were good.
    generation: u64,
    /// Of our own tokens alone: those of others belong to no family.
    watched: Option<Watched>,
}

impl TokenBasis {
    pub(super) fn on(known: &Arc<CachedToken>, checks: &TokenChecks) -> Self {
        let watched = known.token.family.map(|family| checks.renewals.watch(family));
        TokenBasis { opened: known.clone(), carrier: None, generation: known.generation(), watched }
    }

    /// Nothing is to be done for time's sake before.
    pub(super) fn deadline(&self) -> UnixTime {
        self.bearer().token.expires
    }

    fn bearer(&self) -> &Arc<CachedToken> {
        self.carrier.as_ref().unwrap_or(&self.opened)
    }

    /// Why the stream must end, if it must. Costs two comparisons and two atomic loads while nothing has moved.
    pub(super) fn check(&mut self, checks: &TokenChecks, now: UnixTime) -> Result<(), Reason> {
        if now >= self.deadline() {
            self.renew(now)?;
        }
        // The one that opened it counts to the end: whoever revokes it means what it opened.
        for known in self.carrier.iter().chain([&self.opened]) {
            known.check_revocation(&checks.revocations).map_err(|reject| reject.reason)?;
        }
        // Before the keys: if they are swapped meanwhile, the next look is at the newer ones.
        let generation = checks.keyring.generation();
        if self.generation != generation {
            self.check_keys(checks, now)?;
            self.generation = generation;
        }
        Ok(())
    }

    fn renew(&mut self, now: UnixTime) -> Result<(), Reason> {
        let fresh = self.watched.as_ref().and_then(Watched::freshest).filter(|known| now < known.token.expires);
        let fresh = fresh.ok_or(Reason::Expired)?;
        if fresh.generation() != self.generation {
            // Of no keyring: both are looked at again.
            self.generation = 0;
        }
        self.carrier = Some(fresh);
        Ok(())
    }

    /// Some key has gone, or an issuer's terms have changed: is it one of ours?
    fn check_keys(&self, checks: &TokenChecks, now: UnixTime) -> Result<(), Reason> {
        let issuers = &checks.keyring.keys().issuers;
        // Expired or not is asked elsewhere.
        let validity = Validity::ExpiredUpTo(Duration::MAX);
        for known in self.carrier.iter().chain([&self.opened]) {
            if is_still_valid(&known.token, issuers) {
                continue;
            }
            match verify(&known.text, issuers, now, validity, Trace::OFF).map_err(|reject| reject.reason) {
                // A clock that was set back ends nothing.
                Ok(_) | Err(Reason::NotYetValid) => {}
                Err(Reason::KeyRevoked) => return Err(Reason::KeyRevoked),
                // Keys are let go when the last token of theirs has expired. It opened this stream, and another carries it.
                Err(_) if !Arc::ptr_eq(known, self.bearer()) => {}
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }
}
