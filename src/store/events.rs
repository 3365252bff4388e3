//! From what a store has done to the event that tells of it: pure, and the same for every store.

use crate::audit::Event;
use crate::family::refresh_token::PresentedToken;
use crate::family::revocation::Revoked;
use crate::family::rotation::Rotation;
use crate::family::{Family, RevokeReason};
use crate::reject::Reason;

pub(super) fn issued(family: &Family) -> Event {
    Event { generation: Some(family.generation), ..Event::of("token.issued", family) }
}

pub(super) fn ended(family: &Family, reason: RevokeReason) -> Event {
    Event { reason: Some(reason.as_str()), ..Event::of("token.revoked", family) }
}

/// `family`: as it was when the decision was made.
pub(super) fn rotation(rotation: &Rotation, family: Option<&Family>, presented: &PresentedToken) -> Event {
    let of_child = |name, child: &Family| Event { generation: Some(child.generation), ..Event::of(name, child) };
    let of_presented = |name| Event {
        token_id: Some(presented.token_id),
        subject: family.map(|family| family.subject.clone()),
        generation: Some(presented.generation),
        ..Event::new(name)
    };
    match rotation {
        Rotation::Rotated(child) => of_child("token.refreshed", child),
        Rotation::Replayed(child) => of_child("refresh.replayed", child),
        Rotation::Recovered(child) => of_child("refresh.recovered", child),
        Rotation::Reused(_) => of_presented("refresh.reuse_detected"),
        Rotation::Refused(Reason::RefreshConflict) => of_presented("refresh.conflict"),
        Rotation::Refused(Reason::GrantMismatch) => of_presented("refresh.binding_mismatch"),
        Rotation::Refused(Reason::GrantAhead) => of_presented("store.rollback_suspected"),
        Rotation::Refused(reason) => Event { reason: Some(reason.code()), ..of_presented("refresh.denied") },
    }
}

/// Of anything but a family, which is told of by [`ended`].
pub(super) fn revocation(what: &Revoked) -> Event {
    match what {
        Revoked::Family(id) => Event { token_id: Some(*id), ..Event::new("token.revoked") },
        Revoked::Token { issuer, jti } => {
            Event { issuer: Some(issuer.clone()), jti: Some(jti.clone()), ..Event::new("access_token.revoked") }
        }
        Revoked::Subject { issuer, subject, not_after } => Event {
            issuer: Some(issuer.clone()),
            subject: Some(subject.clone()),
            before: Some(not_after.to_string()),
            ..Event::new("subject.revoked")
        },
        Revoked::Issuer { issuer, not_after } => {
            Event { issuer: Some(issuer.clone()), before: Some(not_after.to_string()), ..Event::new("issuer.revoked") }
        }
        Revoked::Everything { not_after } => {
            Event { before: Some(not_after.to_string()), ..Event::new("everything.revoked") }
        }
    }
}
