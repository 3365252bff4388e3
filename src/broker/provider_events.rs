//! Reports of identity providers, each carried out once.

use super::service::Broker;
use crate::store::{Mark, Marked};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::types::reject::Reject;

impl Broker {
    /// Revokes what a provider reported, once for each `mark`. When this returns `Ok`, it is durable, and enforced on
    /// every worker of this process.
    pub async fn revoke_reported(
        &self,
        mark: Mark,
        revoke: Vec<Revoked>,
        context: EventContext,
    ) -> Result<Marked, Reject> {
        let marked = self.with_timeout(self.store.mark(mark, revoke, context)).await?;
        if marked == Marked::Repeated {
            // The first call may have failed because the standby of the database is away.
            self.settle().await?;
        }
        Ok(marked)
    }
}
