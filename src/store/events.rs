//! From what a store has done to the event that tells of it: pure, and the same for every store.

use crate::store::KeysChanged;
use crate::tokens::audit_event::Event;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason};
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;

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

/// One for each thing that happened to a key.
pub(super) fn keys_changed(changed: &KeysChanged) -> Vec<Event> {
    let event = |name, key: &StoredKey| Event { kid: Some(key.kid.clone()), ..Event::new(name) };
    let mut events = Vec::new();
    for key in &changed.after {
        let before = changed.before.iter().find(|before| before.kid == key.kid);
        let happened =
            |time: fn(&StoredKey) -> Option<UnixTime>| time(key).is_some() && before.and_then(time).is_none();
        let names = [
            ("key.created", before.is_none()),
            ("key.activated", happened(|key| key.activated_at)),
            ("key.retired", happened(|key| key.retired_at)),
            ("key.revoked", happened(|key| key.revoked_at)),
        ];
        events.extend(names.into_iter().filter(|(_, happened)| *happened).map(|(name, _)| event(name, key)));
    }
    let gone = changed.before.iter().filter(|key| !changed.after.iter().any(|kept| kept.kid == key.kid));
    events.extend(gone.map(|key| event("key.deleted", key)));
    events
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
