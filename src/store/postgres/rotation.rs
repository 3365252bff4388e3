//! The refresh of a family: read, decided here, and written if no other rotation and no revocation came between.

use std::sync::Mutex;

use crate::store::api::DecideRotation;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::end;
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

    /// Returns false if the family has changed since it was read, or is locked.
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
                let entry = end(before, revoked, Some(before.generation), event, &self.context);
                Ok(shared.log.append(session, vec![entry]).await?.iter().any(Option::is_some))
            }
            _ => {
                if let Some(family) = family {
                    shared.enforcement.enforce_ended(family, self.context.at)?;
                }
                let is_committed = shared.audit.write(session, vec![event]).await?;
                // The child of an earlier call. A commit of this call would come after it.
                if !is_committed && matches!(rotation, Rotation::Replayed(_) | Rotation::Recovered(_)) {
                    session.wait_until_durable().await?;
                }
                Ok(true)
            }
        }
    }
}

impl Operation for Rotate {
    type Output = Rotation;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Rotation, QueryError> {
        let mut attempts = Attempts::default();
        loop {
            let found = shared.rotations.read(session, self.presented.token_id).await?;
            let rotation = self.decide(found.as_ref());
            let written = self.write(shared, session, &rotation, found.as_ref().map(|found| &found.family)).await;
            if matches!(written, Err(QueryError::Lost(_))) {
                *lock(&self.uncertain) = Some(rotation.clone());
            }
            if written? {
                return Ok(rotation);
            }
            attempts.again(&format!("family {}", self.presented.token_id)).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tokens::family::refresh_token::{Roots, current};
    use crate::tokens::family::{RevokeReason, RevokedAt};
    use crate::types::clock::UnixTime;
    use crate::types::secret::Secret;

    const LOGIN: UnixTime = UnixTime::from_millis(1_700_000_000_500);

    fn family(generation: u64) -> Family {
        Family { generation, ..Family::sample(LOGIN) }
    }

    /// The rotation that an attempt reports: it finds `found` and decides `decided`, after an attempt that was to write
    /// `lost` has lost its connection.
    fn reported(lost: Option<Rotation>, found: &Family, decided: Rotation) -> Rotation {
        let token = current(found, &Roots::new((1, Secret::new(vec![7; 32])), vec![])).expect("its root is known");
        let presented = PresentedToken::parse(&token).expect("valid");
        let rotate = Rotate::new(presented, Box::new(move |_, _, _| decided.clone()), LOGIN.into());
        *lock(&rotate.uncertain) = lost;
        rotate.decide(Some(&Found { family: found.clone(), mark: None }))
    }

    #[test]
    fn a_child_that_the_lost_attempt_wrote_is_its_own() {
        let written = Rotation::Rotated(family(2));
        // Its access token was used meanwhile.
        let child = Family { confirmed: 2, ..family(2) };
        for decided in [Rotation::Replayed(child.clone()), Rotation::Recovered(child.clone())] {
            assert_eq!(reported(Some(written.clone()), &child, decided.clone()), Rotation::Rotated(child.clone()));
            assert_eq!(reported(None, &child, decided.clone()), decided);
        }
        // Another request came first.
        let other = Family { rotated_at: LOGIN + Duration::from_millis(1), ..family(2) };
        for decided in [Rotation::Replayed(other.clone()), Rotation::Recovered(other.clone())] {
            assert_eq!(reported(Some(written.clone()), &other, decided.clone()), decided);
        }
    }

    #[test]
    fn a_reuse_that_the_lost_attempt_wrote_is_its_own() {
        let ended = |millis| {
            let at = LOGIN + Duration::from_millis(millis);
            Family { revoked: Some(RevokedAt { at, reason: RevokeReason::Reuse }), ..family(2) }
        };
        let (rejected, written) = (Rotation::Rejected(Reason::GrantRevoked), Rotation::Reused(ended(1)));
        assert_eq!(reported(Some(written.clone()), &ended(1), rejected.clone()), written);
        assert_eq!(reported(Some(written), &ended(2), rejected.clone()), rejected);
        assert_eq!(reported(None, &ended(1), rejected.clone()), rejected);
    }
}
