//! The audit events of the changes in a store. No I/O, and the same for every store.

use std::sync::atomic::Ordering;

use crate::store::api::{KeysChanged, Outbox};
use crate::store::endings::{Revoker, shown_reason};
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::authorization::grant::GrantedFamily;
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

/// A client redeemed the code that a user granted.
pub(super) fn granted(grant: &GrantedFamily) -> Event {
    of_grant("authorization.granted", grant)
}

/// The store remembers no earlier session of this client for this user.
pub(super) fn client_seen(grant: &GrantedFamily) -> Event {
    of_grant("client.seen", grant)
}

fn of_grant(name: &'static str, grant: &GrantedFamily) -> Event {
    Event { redirect_host: Some(grant.redirect_host.clone()), ..Event::for_grant(name, &grant.family) }
}

/// The tokens of a login at a provider were refreshed there.
pub(super) fn login_refreshed(family: &Family) -> Event {
    Event::for_family("provider_login.refreshed", family)
}

pub(super) fn ended(family: &Family, reason: RevokeReason, context: &EventContext) -> Event {
    let revoker = Revoker::of(reason, context);
    let shown = Some(shown_reason(reason, revoker.as_ref()));
    if family.key_hash.is_some() {
        return Event { reason: shown, ..Event::for_family("api_key.revoked", family) };
    }
    if family.client_id.is_empty() {
        return Event { reason: shown, ..Event::for_family("token.revoked", family) };
    }
    // The reuse of a refresh token has an event of its own.
    if reason == RevokeReason::Reuse && !matches!(revoker, Some(Revoker::Grant(_))) {
        return Event::for_grant("code.reused", family);
    }
    let by = Some(ended_by(reason, revoker.as_ref(), context));
    Event { reason: shown, by, ..Event::for_grant("token.revoked", family) }
}

/// Who ended the session of a client. The reason `logout` does not say it.
fn ended_by(reason: RevokeReason, revoker: Option<&Revoker>, context: &EventContext) -> &'static str {
    match revoker {
        Some(Revoker::Operator(_)) => "operator",
        Some(Revoker::Caller(_)) => "caller",
        Some(Revoker::Provider(_)) => "provider",
        // By granting again.
        Some(Revoker::Grant(_)) => "user",
        None if reason != RevokeReason::Logout => "gateway",
        None if context.is_by_client => "client",
        None => "user",
    }
}

/// `family` is the family before the rotation.
pub(super) fn rotation(rotation: &Rotation, family: Option<&Family>, presented: &PresentedToken) -> Event {
    let of_child =
        |name, child: &Family| Event { generation: Some(child.generation), ..Event::for_family(name, child) };
    let of_presented = |name| Event {
        token_id: Some(presented.token_id),
        subject: family.map(|family| family.subject.clone()),
        client_id: family.map(|family| family.client_id.clone()).filter(|client_id| !client_id.is_empty()),
        generation: Some(presented.generation),
        ..Event::new(name)
    };
    match rotation {
        Rotation::Rotated(child) => of_child("token.refreshed", child),
        Rotation::Replayed(child) => of_child("refresh.replayed", child),
        Rotation::Recovered(child) => of_child("refresh.recovered", child),
        Rotation::Repeated(child) => of_child("refresh.repeated", child),
        Rotation::Reused(_) => of_presented("refresh.reuse_detected"),
        Rotation::Superseded(_) => of_presented("refresh.superseded"),
        Rotation::Rejected(Reason::RefreshConflict) => of_presented("refresh.conflict"),
        Rotation::Rejected(Reason::GrantMismatch) => of_presented("refresh.binding_mismatch"),
        Rotation::Rejected(Reason::GrantAhead) => of_presented("store.rollback_suspected"),
        Rotation::Rejected(reason) => Event { reason: Some(reason.code()), ..of_presented("refresh.denied") },
    }
}

/// Returns true if anyone can cause this outcome, without a token of the gateway: it has no event, or strangers could
/// fill the audit log.
pub(super) fn is_of_stranger(rotation: &Rotation) -> bool {
    matches!(rotation, Rotation::Rejected(Reason::GrantUnknown | Reason::GrantForged))
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
    fn the_end_of_a_clients_session_says_who_ended_it() {
        let at = EventContext::from(UnixTime::from_secs(1_000));
        let of_client = Family { client_id: "notes".into(), ..Family::sample(UnixTime::from_secs(1)) };
        let operator = EventContext { operator: Some("dana".into()), ..at.clone() };
        let caller = EventContext { caller: Some("bob".into()), ..at.clone() };
        let provider = at.clone().by_provider(&"corp".into());
        for (reason, context, name, shown, by) in [
            (RevokeReason::Logout, at.clone(), "token.revoked", Some("logout"), Some("user")),
            (RevokeReason::Logout, at.clone().by_client(), "token.revoked", Some("logout"), Some("client")),
            (RevokeReason::Admin, operator, "token.revoked", Some("admin"), Some("operator")),
            (RevokeReason::Admin, caller, "token.revoked", Some("admin"), Some("caller")),
            (RevokeReason::Admin, provider, "token.revoked", Some("provider"), Some("provider")),
            (RevokeReason::Limit, at.clone(), "token.revoked", Some("limit"), Some("gateway")),
            (RevokeReason::Reuse, at.clone(), "code.reused", None, None),
        ] {
            let event = ended(&of_client, reason, &context);
            assert_eq!((event.name, event.reason, event.by), (name, shown, by));
            assert_eq!(event.client_id.as_deref(), Some("notes"));
            let own = ended(&Family::sample(UnixTime::from_secs(1)), reason, &context);
            assert_eq!((own.name, own.by, own.client_id), ("token.revoked", None, None), "of no client");
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
