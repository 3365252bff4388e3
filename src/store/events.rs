//! The audit events of the changes in a store. No I/O, and the same for every store.

use std::sync::atomic::Ordering;

use crate::store::api::{KeysChanged, Outbox};
use crate::tokens::audit_event::Event;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason};
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;

/// Counts events that were not recorded, because the outbox was full.
pub(super) fn count_lost(outbox: &Outbox, more: u64) {
    if more == 0 {
        return;
    }
    let before = outbox.lost.fetch_add(more, Ordering::Relaxed);
    let lost = before + more;
    // Logged at 1, 2, 4, 8, …, so that a flood of events does not flood the log.
    if before.leading_zeros() != lost.leading_zeros() {
        tracing::error!(lost, "audit events are lost: the outbox is full; check their delivery, or raise audit.outbox");
    }
}

pub(super) fn issued(family: &Family) -> Event {
    Event { generation: Some(family.generation), ..Event::for_family("token.issued", family) }
}

pub(super) fn ended(family: &Family, reason: RevokeReason) -> Event {
    Event { reason: Some(reason.as_str()), ..Event::for_family("token.revoked", family) }
}

/// `family` is the family before the rotation.
pub(super) fn rotation(rotation: &Rotation, family: Option<&Family>, presented: &PresentedToken) -> Event {
    let of_child =
        |name, child: &Family| Event { generation: Some(child.generation), ..Event::for_family(name, child) };
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
        Rotation::Rejected(Reason::RefreshConflict) => of_presented("refresh.conflict"),
        Rotation::Rejected(Reason::GrantMismatch) => of_presented("refresh.binding_mismatch"),
        Rotation::Rejected(Reason::GrantAhead) => of_presented("store.rollback_suspected"),
        Rotation::Rejected(reason) => Event { reason: Some(reason.code()), ..of_presented("refresh.denied") },
    }
}

/// One event for each change of a key.
pub(super) fn keys_changed(changed: &KeysChanged) -> Vec<Event> {
    let event = |name, key: &StoredKey| {
        let may_refresh = name == "key.revoked" && !key.is_revoked_for_good();
        Event { kid: Some(key.kid.clone()), reason: may_refresh.then_some("may_refresh"), ..Event::new(name) }
    };
    // The operator takes back that its tokens may refresh.
    let is_now_final = |before: Option<&StoredKey>, key: &StoredKey| {
        key.is_revoked_for_good() && !before.is_some_and(StoredKey::is_revoked_for_good)
    };
    let mut events = Vec::new();
    for key in &changed.after {
        let before = changed.before.iter().find(|before| before.kid == key.kid);
        let is_new = |time: fn(&StoredKey) -> Option<UnixTime>| time(key).is_some() && before.and_then(time).is_none();
        let names = [
            ("key.created", before.is_none()),
            ("key.activated", is_new(|key| key.activated_at)),
            ("key.retired", is_new(|key| key.retired_at)),
            ("key.revoked", is_new(|key| key.revoked_at) || is_now_final(before, key)),
        ];
        events.extend(names.into_iter().filter(|(_, is_new)| *is_new).map(|(name, _)| event(name, key)));
    }
    let deleted = changed.before.iter().filter(|key| !changed.after.iter().any(|kept| kept.kid == key.kid));
    events.extend(deleted.map(|key| event("key.deleted", key)));
    events
}

/// The revocation of a family is recorded by [`ended`] instead, with its subject and reason.
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
