//! Logout tokens that cannot be carried out now: their key is not known yet, or the database does not respond.
//!
//! Most providers send a logout token once, and leave after some seconds. So the gateway goes on by itself, until the
//! token has expired. The provider gets its 200 only if it waits until the logout is durable.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::reported_logout::ReportedLogout;
use crate::auth::signature_queue::SignatureQueue;
use crate::auth::signed_jwt::SignatureCheck;
use crate::broker::ReportOutcome;
use crate::store::Marked;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// Maximum logout tokens of one provider that wait. Those of a stranger, with an invented key id, wait for the next
/// fetch of the keys, and then count against its address.
const MAX_WAITING: usize = 256;
/// How soon the next attempt is.
const RETRY: Duration = Duration::from_secs(1);

/// Of one provider.
#[derive(Clone)]
pub(super) struct LateLogouts {
    free: Arc<Semaphore>,
    queue: Arc<SignatureQueue>,
    clock: Arc<dyn Clock>,
}

/// A logout token that waits.
struct Late {
    logout: ReportedLogout,
    /// If false, its signature is not checked yet.
    is_verified: bool,
    of: LateLogouts,
}

type Outcome = Result<Marked, Reject>;

impl LateLogouts {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        LateLogouts { free: Arc::new(Semaphore::new(MAX_WAITING)), queue: Arc::default(), clock }
    }

    /// Returns what the first attempt has led to. Further ones follow, whether the provider waits or not.
    pub(super) async fn go_on(&self, logout: ReportedLogout, is_verified: bool) -> Outcome {
        let mut late = Late { logout, is_verified, of: self.clone() };
        let Ok(permit) = self.free.clone().try_acquire_owned() else { return late.attempt().await };
        let (first, outcome) = oneshot::channel();
        let broker = late.logout.broker.clone();
        broker.detached.begin_in_background(async move {
            let _permit = permit;
            late.attempts(first).await;
        });
        outcome.await.unwrap_or_else(|_| Err(Reject::new(Reason::Internal, "a logout ended without an outcome")))
    }
}

impl Late {
    async fn attempts(mut self, first: oneshot::Sender<Outcome>) {
        let mut first = Some(first);
        loop {
            let outcome = self.attempt().await;
            // Another attempt can have another outcome.
            let is_temporary = outcome.as_ref().is_err_and(|reject| reject.reason.status().is_server_error());
            let is_over = !is_temporary || self.logout.logout.until <= self.of.clock.now();
            let unseen = match first.take() {
                Some(first) => first.send(outcome).err(),
                None => Some(outcome),
            };
            if is_over {
                return unseen.iter().for_each(|outcome| self.report(outcome));
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn attempt(&mut self) -> Outcome {
        if !self.is_verified {
            let LateLogouts { queue, clock, .. } = &self.of;
            // An unknown key is a verdict only after the keys were fetched.
            let check = SignatureCheck { clock: &**clock, payer: None, queue, repeats: true };
            self.logout.verify(&check).await?;
            self.is_verified = true;
        }
        self.logout.carry_out().await
    }

    /// The provider has got another response, or none.
    fn report(&self, outcome: &Outcome) {
        let ReportedLogout { provider, broker, event, .. } = &self.logout;
        let name = &*provider.name;
        let outcome = match outcome {
            Ok(_) => {
                tracing::info!(provider = name, "carried out a logout that had to wait");
                ReportOutcome::Revoked
            }
            Err(reject) => {
                let reason = reject.reason.code();
                let detail = &*reject.detail;
                tracing::warn!(provider = name, reason, detail, "could not carry out a logout that had to wait");
                event.client.iter().for_each(|client| broker.throttle.count_failure(*client));
                ReportOutcome::Rejected
            }
        };
        broker.reports.count(&provider.name, "logout", outcome);
    }
}
