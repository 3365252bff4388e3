//! Verifies the signature of a JWT that another server sends to the gateway itself. It costs as much as that of a
//! Bearer token, so the same limits apply: one check at a time on each worker, and few bad ones from each address.

use crate::auth::bad_signatures::Payer;
use crate::auth::context::AuthContext;
use crate::auth::keyring::{RefetchOutcome, Source};
use crate::auth::signature_queue::SignatureQueue;
use crate::tokens::jwt::signed::UnverifiedToken;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// Where a signature is checked, and which client a bad one is counted for.
#[derive(Clone, Copy)]
pub struct SignatureCheck<'r> {
    pub clock: &'r dyn Clock,
    /// `None` for a JWT that the gateway has fetched.
    pub payer: Option<Payer<'r>>,
    pub queue: &'r SignatureQueue,
    /// If true, the sender is known and repeats what fails. An unknown key that was not asked for is then no verdict:
    /// without it, a token with a new key would be lost. A stranger must not get away with such tokens.
    pub repeats: bool,
}

impl<'r> From<AuthContext<'r>> for SignatureCheck<'r> {
    fn from(context: AuthContext<'r>) -> Self {
        SignatureCheck {
            clock: context.clock,
            payer: Some(context.payer),
            queue: context.signature_queue,
            repeats: false,
        }
    }
}

impl SignatureCheck<'_> {
    /// Verifies the signature with the keys of `source`. Fetches them once if the key is unknown, or did not make the
    /// signature: it may have been replaced under the same `kid`.
    pub async fn verify(&self, jwt: &UnverifiedToken<'_>, source: &Source) -> Result<(), Reject> {
        match self.verify_with_known(jwt, source).await {
            Err(unknown) if unknown.reason == Reason::UnknownKey => {}
            verified => return verified,
        }
        let outcome = source.refetch_unknown(self.clock.uptime()).await?;
        // An earlier fetch may have ended after the first look at the keys.
        let still = match self.verify_once(jwt, source).await {
            Err(still) => source.still_rejected(still),
            Ok(()) => return Ok(()),
        };
        match still.reason {
            Reason::UnknownKey if self.repeats && outcome == RefetchOutcome::CoolingDown => Err(Reject::new(
                Reason::KeysUnavailable,
                "unknown key, and the keys of its issuer were fetched a moment ago",
            )),
            _ => Err(still),
        }
    }

    /// As [`SignatureCheck::verify`], with the names of keys that are known.
    pub async fn verify_with_known(&self, jwt: &UnverifiedToken<'_>, source: &Source) -> Result<(), Reject> {
        match self.verify_once(jwt, source).await {
            Err(bad) if bad.reason == Reason::BadSignature => {
                let outcome = source.refetch(self.clock.uptime()).await;
                if outcome == RefetchOutcome::Fetched { self.verify_once(jwt, source).await } else { Err(bad) }
            }
            verified => verified,
        }
    }

    async fn verify_once(&self, jwt: &UnverifiedToken<'_>, source: &Source) -> Result<(), Reject> {
        self.check_payer()?;
        let permit = self.queue.next().await;
        if permit.has_waited {
            self.check_payer()?;
        }
        let verified = jwt.verify(&source.trusted());
        let is_bad = verified.as_ref().is_err_and(|reject| reject.reason == Reason::BadSignature);
        if is_bad && let Some(payer) = self.payer {
            payer.count(self.clock.uptime());
        }
        if is_bad || verified.is_ok() {
            permit.end().await;
        }
        verified
    }

    fn check_payer(&self) -> Result<(), Reject> {
        self.payer.map_or(Ok(()), |payer| payer.check(self.clock.uptime()))
    }
}
