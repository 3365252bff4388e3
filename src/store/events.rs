//! The audit events of the changes in a store. No I/O, and the same for every store.

use std::sync::atomic::Ordering;

use crate::store::api::{KeysChanged, Outbox};
use crate::store::endings::{Revoker, shown_reason};
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason};
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;

/// Counts events that were not recorded, because the outbox was full.
pub(super) fn count_lost(outbox: &Outbox, more: u64) {
    let before = outbox.lost.fetch_add(more, Ordering::Relaxed);
    if let Some(lost) = lost_to_report(before, more) {
        tracing::error!(lost, "audit events are lost: the outbox is full; check their delivery, or raise audit.outbox");
    }
}

/// Reported at 1, 2, 4, 8, …, so that a flood of events does not flood the log.
fn lost_to_report(before: u64, more: u64) -> Option<u64> {
    Some(before + more).filter(|lost| lost.leading_zeros() != before.leading_zeros())
}

pub(super) fn issued(family: &Family) -> Event {
    match family.key_hash {
        Some(_) => Event::for_family("api_key.issued", family),
        None => Event { generation: Some(family.generation), ..Event::for_family("token.issued", family) },
    }
}

/// The tokens of a login at a provider were refreshed there.
pub(super) fn login_refreshed(family: &Family) -> Event {
    Event::for_family("provider_login.refreshed", family)
}

pub(super) fn ended(family: &Family, reason: RevokeReason, context: &EventContext) -> Event {
    let name = if family.key_hash.is_some() { "api_key.revoked" } else { "token.revoked" };
    let reason = shown_reason(reason, Revoker::of(reason, context).as_ref());
    Event { reason: Some(reason), ..Event::for_family(name, family) }
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
        Rotation::Repeated(child) => of_child("refresh.repeated", child),
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
            (
                "key.activated",
                key.activated_at.is_some() && before.and_then(|key| key.activated_at) != key.activated_at,
            ),
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
        Revoked::Session { issuer, session } => Event {
            issuer: Some(issuer.clone()),
            session: Some(session.clone()),
            ..Event::new("issuer_session.revoked")
        },
        Revoked::Subject { issuer, subject, not_after } => Event {
            issuer: Some(issuer.clone()),
            subject: Some(subject.clone()),
            before: Some(not_after.to_string()),
            ..Event::new("subject.revoked")
        },
        Revoked::Issuer { issuer, not_after } => {
            Event { issuer: Some(issuer.clone()), before: Some(not_after.to_string()), ..Event::new("issuer.revoked") }
        }
        Revoked::Client { client_id, subject, not_after } => Event {
            client_id: Some(client_id.clone()),
            subject: subject.clone(),
            before: Some(not_after.to_string()),
            ..Event::new("client.revoked")
        },
        Revoked::Everything { not_after } => {
            Event { before: Some(not_after.to_string()), ..Event::new("everything.revoked") }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::ids::TokenId;

    fn key(revoked_at: Option<UnixTime>, sealed: &[u8]) -> StoredKey {
        let at = UnixTime::from_secs(1_000);
        StoredKey {
            kid: "k".into(),
            algorithm: "ES256".into(),
            root: 1,
            sealed: sealed.to_vec(),
            created_at: at,
            activated_at: Some(at),
            retired_at: None,
            revoked_at,
            token_life: Duration::from_secs(900),
        }
    }

    #[test]
    fn the_revocation_of_a_key_says_whether_its_tokens_may_refresh() {
        let at = Some(UnixTime::from_secs(2_000));
        let active = key(None, b"pem");
        let may_refresh = key(at, b"pem");
        let for_good = key(at, b"");
        for (before, after, events) in [
            (&active, &may_refresh, vec![("key.revoked", Some("may_refresh"))]),
            (&active, &for_good, vec![("key.revoked", None)]),
            (&may_refresh, &for_good, vec![("key.revoked", None)]),
            (&may_refresh, &may_refresh, vec![]),
        ] {
            let changed = KeysChanged { before: vec![before.clone()], after: vec![after.clone()] };
            let names = keys_changed(&changed).into_iter().map(|event| (event.name, event.reason)).collect::<Vec<_>>();
            assert_eq!(names, events);
        }
    }

    #[test]
    fn the_revocation_of_a_family_names_it() {
        let id = TokenId::from_bytes([7; 16]);
        assert_eq!(revocation(&Revoked::Family(id)).token_id, Some(id));
    }

    #[test]
    fn lost_events_are_reported_at_each_power_of_two() {
        let mut reported = Vec::new();
        let mut lost = 0;
        for more in [0, 1, 0, 1, 1, 1, 3, 1, 5] {
            reported.extend(lost_to_report(lost, more));
            lost += more;
        }
        assert_eq!(reported, [1, 2, 4, 8]);
    }
}
