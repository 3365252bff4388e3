//! The refresh of a family: read, decided here, and written if no other rotation and no revocation came between.

use parking_lot::Mutex;

use crate::store::api::DecideRotation;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::late::CallTime;
use crate::store::pool::OperationKind;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::clock::Reading;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::end;
use crate::store::postgres::grants::count_late_refresh;
use crate::store::postgres::lookup::MarkedFamily;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rotations::Change;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::rotation::Rotation;
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;
use crate::types::secret;

pub(super) struct Rotate {
    presented: PresentedToken,
    decide: Mutex<DecideRotation>,
    context: EventContext,
    event: [u8; 16],
    call: CallTime,
    /// The time of the database when the call began, at the earliest.
    began: Option<UnixTime>,
    /// What an earlier attempt tried to write before its connection was lost.
    uncertain: Mutex<Option<Decision>>,
}

/// What a call decided by one reading.
#[derive(Clone)]
struct Decision {
    rotation: Rotation,
    /// The new generation gets the time of the write.
    is_timed: bool,
}

impl Decision {
    /// Returns true if an attempt that decided this, and lost its connection, has written this child. `confirmed` and
    /// `grant` may have changed since.
    fn has_written(&self, child: &Family) -> bool {
        let Rotation::Rotated(next) = &self.rotation else { return false };
        let rotated_at = if self.is_timed { next.rotated_at.max(child.rotated_at) } else { next.rotated_at };
        *child == Family { confirmed: child.confirmed, grant: child.grant, rotated_at, ..next.clone() }
    }
}

impl Rotate {
    /// `began`: the time of the database now, at the earliest.
    pub(super) fn new(
        presented: PresentedToken,
        decide: DecideRotation,
        context: EventContext,
        began: Option<UnixTime>,
    ) -> Self {
        let decide = Mutex::new(decide);
        let event = secret::random();
        let uncertain = Mutex::new(None);
        Rotate { presented, decide, context, event, call: CallTime::begin(), began, uncertain }
    }

    /// `time`: that of the decision, by the database.
    fn decide(&self, found: Option<&MarkedFamily>, time: Option<UnixTime>) -> Decision {
        let family = found.map(|found| &found.family);
        let decided = self.decide.lock()(family, found.and_then(|found| found.mark), &self.presented, time);
        let uncertain = self.uncertain.lock();
        let rotation = match (&decided, &*uncertain, family) {
            (Rotation::Replayed(child) | Rotation::Recovered(child) | Rotation::Repeated(child), Some(lost), _)
                if lost.has_written(child) =>
            {
                Rotation::Rotated(child.clone())
            }
            (
                Rotation::Rejected(Reason::GrantRevoked),
                Some(Decision { rotation: Rotation::Reused(written), .. }),
                Some(family),
            ) if family.revoked == written.revoked => Rotation::Reused(family.clone()),
            // It must not count twice: the tenth one would end the family.
            (
                Rotation::Superseded(_) | Rotation::Reused(_),
                Some(Decision { rotation: Rotation::Superseded(written), .. }),
                Some(family),
            ) if family.grant == written.grant => Rotation::Superseded(family.clone()),
            _ => decided,
        };
        let is_timed = matches!(&rotation, Rotation::Rotated(next) if Some(next.rotated_at) == time);
        Decision { rotation, is_timed }
    }

    /// Fails if the decision comes too late to take effect.
    fn check(&self, shared: &Shared, rotation: &Rotation, reading: Option<&Reading>) -> Result<(), StoreError> {
        let age = reading.zip(self.began).map(|(reading, began)| reading.time.since(began));
        self.call.check_rotation(shared.timeout, rotation, age.unwrap_or_default(), || shared.was_paused())
    }

    /// Returns what was written. `None` if the family has changed since it was read, or is locked.
    async fn write(
        &self,
        shared: &Shared,
        session: &Session,
        decision: &Decision,
        family: Option<&Family>,
    ) -> Result<Option<Rotation>, QueryError> {
        let Decision { rotation, is_timed } = decision;
        let is_written = |is_written: bool| is_written.then(|| rotation.clone());
        let event = EventRow::new(self.event, &events::rotation(rotation, family, &self.presented), &self.context);
        match (rotation, family) {
            (Rotation::Rotated(next), Some(before)) if next.generation != before.generation => {
                let change = Change { seen: before.generation, next: next.clone(), is_timed: *is_timed, event };
                let rotated_at = shared.rotations.write(session, change).await?;
                Ok(rotated_at.map(|rotated_at| Rotation::Rotated(Family { rotated_at, ..next.clone() })))
            }
            (Rotation::Reused(ended), Some(before)) if before.revoked.is_none() => {
                let revoked = ended
                    .revoked
                    .ok_or_else(|| StoreError::new("a reuse of a refresh token did not revoke its family"))?;
                let entry = end(before, revoked, Some(before.generation), event, &self.context);
                Ok(is_written(shared.log.append(vec![entry]).await?.iter().any(Option::is_some)))
            }
            (Rotation::Superseded(after), Some(before)) if after.grant != before.grant => {
                Ok(is_written(count_late_refresh(shared, session, before, after, event).await?))
            }
            _ if events::is_of_stranger(rotation) => Ok(is_written(true)),
            _ => {
                if let Some(family) = family {
                    shared.enforcement.enforce_ended(family, self.context.at)?;
                }
                let is_committed = shared.audit.write(session, vec![event]).await?;
                // The child of an earlier call. A commit of this call would come after it.
                if !is_committed && is_of_earlier_child(rotation) {
                    session.wait_until_durable().await?;
                }
                Ok(is_written(true))
            }
        }
    }
}

/// Returns true if the response has the token that an earlier rotation made.
fn is_of_earlier_child(rotation: &Rotation) -> bool {
    matches!(rotation, Rotation::Replayed(_) | Rotation::Recovered(_) | Rotation::Repeated(_))
}

impl Operation for Rotate {
    type Output = Rotation;

    const KIND: OperationKind = OperationKind::Refresh;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Rotation, QueryError> {
        let mut attempts = Attempts::default();
        loop {
            let found = shared.rotations.read(session, self.presented.token_id).await?;
            let reading = found.as_ref().map(|found| found.reading);
            let found = found.map(|found| found.found);
            let family = found.as_ref().map(|found| &found.family);
            let time = reading.zip(family).map(|(reading, family)| shared.clock.not_before(&reading, family));
            let decision = self.decide(found.as_ref(), time);
            self.check(shared, &decision.rotation, reading.as_ref())?;
            let written = self.write(shared, session, &decision, family).await;
            if matches!(written, Err(QueryError::Lost(_))) {
                *self.uncertain.lock() = Some(decision);
            }
            if let Some(rotation) = written? {
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
    use crate::tokens::family::{Grant, RevokeReason, RevokedAt, Superseded};
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
        let rotate = Rotate::new(presented, Box::new(move |_, _, _, _| decided.clone()), LOGIN.into(), None);
        *rotate.uncertain.lock() = lost.map(|rotation| Decision { rotation, is_timed: false });
        rotate.decide(Some(&MarkedFamily { family: found.clone(), mark: None }), None).rotation
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

    /// The write comes after the decision, and the lost attempt does not know when it was.
    #[test]
    fn a_child_with_the_time_of_its_write_is_its_own() {
        let child = |millis| Family { rotated_at: LOGIN + Duration::from_millis(millis), ..family(2) };
        for (is_timed, found, is_own) in
            [(true, child(30), true), (true, child(0), true), (false, child(30), false), (false, child(0), true)]
        {
            let lost = Decision { rotation: Rotation::Rotated(family(2)), is_timed };
            assert_eq!(lost.has_written(&found), is_own, "{is_timed} {found:?}");
        }
        let lost = Decision { rotation: Rotation::Rotated(child(1)), is_timed: true };
        assert!(!lost.has_written(&family(2)), "it was rotated before the decision");
        let other = Family { last_used_at: LOGIN + Duration::from_millis(1), ..child(30) };
        assert!(!lost.has_written(&other), "another request came first");
    }

    #[test]
    fn a_reuse_that_the_lost_attempt_wrote_is_its_own() {
        let ended = |millis| {
            let at = LOGIN + Duration::from_millis(millis);
            Family { revoked: Some(RevokedAt { at, reason: RevokeReason::Reuse }), ..family(2) }
        };
        let rejected = Rotation::Rejected(Reason::GrantRevoked);
        let written = Rotation::Reused(ended(1));
        assert_eq!(reported(Some(written.clone()), &ended(1), rejected.clone()), written);
        assert_eq!(reported(Some(written), &ended(2), rejected.clone()), rejected);
        assert_eq!(reported(None, &ended(1), rejected.clone()), rejected);
    }

    #[test]
    fn a_late_refresh_that_the_lost_attempt_counted_is_its_own() {
        let counted = |count| {
            let superseded = Some(Superseded { at: LOGIN, count });
            Family { grant: Some(Grant { superseded }), ..family(2) }
        };
        let ended = Rotation::Reused(Family {
            revoked: Some(RevokedAt { at: LOGIN, reason: RevokeReason::Reuse }),
            ..counted(10)
        });
        let written = Rotation::Superseded(counted(10));
        assert_eq!(reported(Some(written.clone()), &counted(10), ended.clone()), written);
        assert_eq!(reported(None, &counted(10), ended.clone()), ended);
        assert_eq!(reported(Some(Rotation::Superseded(counted(9))), &counted(10), ended.clone()), ended);
        let second = Rotation::Superseded(counted(2));
        let first = Rotation::Superseded(counted(1));
        assert_eq!(reported(Some(first.clone()), &counted(1), second.clone()), first);
        assert_eq!(reported(None, &counted(1), second.clone()), second);
    }
}
