//! The refresh of a family: read, decided here, and written if no other rotation and no revocation came between.

use std::sync::Mutex;

use crate::store::api::DecideRotation;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::{MAX_DECISIONS, changed_often, end};
use crate::store::postgres::lookup::Found;
use crate::store::postgres::operation::{Operation, Shared, lock};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rotations::Change;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::rotation::Rotation;
use crate::types::reject::Reason;
use crate::types::secret;

pub(super) struct Rotate {
    presented: PresentedToken,
    decide: Mutex<DecideRotation>,
    context: EventContext,
    event: [u8; 16],
    /// What an earlier attempt tried to write before its connection was lost.
    uncertain: Mutex<Option<Rotation>>,
}

impl Rotate {
    pub(super) fn new(presented: PresentedToken, decide: DecideRotation, context: EventContext) -> Self {
        Rotate { presented, decide: Mutex::new(decide), context, event: secret::random(), uncertain: Mutex::new(None) }
    }

    fn decide(&self, found: Option<&Found>) -> Rotation {
        let family = found.map(|found| &found.family);
        let decided = lock(&self.decide)(family, found.and_then(|found| found.mark), &self.presented);
        let uncertain = lock(&self.uncertain);
        match (&decided, &*uncertain, family) {
            // The lost attempt has written this family. `confirmed` may have changed since.
            (Rotation::Replayed(child) | Rotation::Recovered(child), Some(Rotation::Rotated(written)), _)
                if *child == (Family { confirmed: child.confirmed, ..written.clone() }) =>
            {
                Rotation::Rotated(child.clone())
            }
            (Rotation::Rejected(Reason::GrantRevoked), Some(Rotation::Reused(written)), Some(family))
                if family.revoked == written.revoked =>
            {
                Rotation::Reused(family.clone())
            }
            _ => decided,
        }
    }

    /// Returns false if the family has changed since it was read.
    async fn write(
        &self,
        shared: &Shared,
        session: &Session,
        rotation: &Rotation,
        family: Option<&Family>,
    ) -> Result<bool, QueryError> {
        let event = EventRow::new(self.event, &events::rotation(rotation, family, &self.presented), &self.context);
        match (rotation, family) {
            (Rotation::Rotated(next), Some(before)) if next.generation != before.generation => {
                let change = Change { seen: before.generation, next: next.clone(), event };
                shared.rotations.write(session, change).await
            }
            (Rotation::Reused(ended), Some(before)) if before.revoked.is_none() => {
                let revoked = ended
                    .revoked
                    .ok_or_else(|| StoreError::new("a reuse of a refresh token did not revoke its family"))?;
                let entry = end(before, revoked, Some(before.generation), event);
                Ok(shared.log.append(session, vec![entry]).await?.iter().any(Option::is_some))
            }
            _ => {
                if let Some(family) = family {
                    shared.enforcement.enforce_ended(family, self.context.at)?;
                }
                shared.audit.write(session, vec![event]).await?;
                Ok(true)
            }
        }
    }
}

impl Operation for Rotate {
    type Output = Rotation;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Rotation, QueryError> {
        for _ in 0..MAX_DECISIONS {
            let found = shared.rotations.read(session, self.presented.token_id).await?;
            let rotation = self.decide(found.as_ref());
            let written = self.write(shared, session, &rotation, found.as_ref().map(|found| &found.family)).await;
            if matches!(written, Err(QueryError::Lost(_))) {
                *lock(&self.uncertain) = Some(rotation.clone());
            }
            if written? {
                return Ok(rotation);
            }
        }
        Err(changed_often(self.presented.token_id))
    }
}
