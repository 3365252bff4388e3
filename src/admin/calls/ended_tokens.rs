//! `GET /admin/v1/tokens/ended`: what was ended, why and by which actor.

use std::net::IpAddr;

use http::{Response, StatusCode, Uri};
use serde::Serialize;

use super::query::Query;
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{BY_GRANT, BY_PROVIDER, Ending, EndingSearch, FoundEndings, Revoker, shown_reason};
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, RevokeReason};
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

#[derive(Serialize)]
struct Page {
    ended: Vec<EndingEntry>,
    /// `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Times are RFC 3339.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndingEntry {
    ended_at: String,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<TokenId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    /// The `sid` at that issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// Only what began at or before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    /// The provider or event stream that reported the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
}

pub(super) async fn handle(admin: &Admin, uri: &Uri) -> Result<Response<Body>, Reject> {
    let search = search(uri)?;
    let FoundEndings { endings, next } = admin.broker.with_timeout(admin.broker.store.endings(search)).await?;
    let ended = endings.into_iter().map(|(ending, family)| EndingEntry::of(ending, family)).collect();
    Ok(respond::json(StatusCode::OK, &Page { ended, next: next.map(|sequence| sequence.to_string()) }))
}

fn search(uri: &Uri) -> Result<EndingSearch, Reject> {
    let mut query = Query::read(uri)?;
    let invalid = |error| Reject::new(Reason::BadParameter, error);
    let reason = query.take("reason").map(|text| {
        reason_of(&text).ok_or_else(|| invalid("reason: expected logout, admin, provider, reuse, superseded or limit"))
    });
    let (reason, is_renamed) = reason.transpose()?.unzip();
    let before = query.take("after").map(|text| {
        let sequence = text.parse().ok().filter(|sequence| i64::try_from(*sequence).is_ok());
        sequence.ok_or_else(|| invalid("after: expected `next` of the page before"))
    });
    let limit = query.limit()?;
    query.finish()?;
    Ok(EndingSearch { reason, is_renamed: is_renamed.flatten(), before: before.transpose()?, limit })
}

/// The reason, and [`EndingSearch::is_renamed`].
fn reason_of(text: &str) -> Option<(RevokeReason, Option<bool>)> {
    match text {
        BY_PROVIDER => Some((RevokeReason::Admin, Some(true))),
        BY_GRANT => Some((RevokeReason::Reuse, Some(true))),
        _ => match RevokeReason::parse(text)? {
            reason @ (RevokeReason::Admin | RevokeReason::Reuse) => Some((reason, Some(false))),
            reason => Some((reason, None)),
        },
    }
}

impl EndingEntry {
    fn of(ending: Ending, family: Option<Family>) -> Self {
        let Ending { what, at, reason, by, .. } = ending;
        let before = what.not_after().map(|time| time.to_string());
        let target = match what {
            Revoked::Family(id) => EndingEntry { token_id: Some(id), ..EndingEntry::of_session(family) },
            Revoked::Token { issuer, jti } => {
                EndingEntry { what: "token", issuer: Some(issuer), jti: Some(jti), ..EndingEntry::default() }
            }
            Revoked::Session { issuer, session } => EndingEntry {
                what: "issuer_session",
                issuer: Some(issuer),
                session: Some(session),
                ..EndingEntry::default()
            },
            Revoked::Subject { issuer, subject, .. } => {
                EndingEntry { what: "subject", issuer: Some(issuer), sub: Some(subject), ..EndingEntry::default() }
            }
            Revoked::Issuer { issuer, .. } => {
                EndingEntry { what: "issuer", issuer: Some(issuer), ..EndingEntry::default() }
            }
            Revoked::Client { client_id, subject, .. } => {
                EndingEntry { what: "client", client_id: Some(client_id), sub: subject, ..EndingEntry::default() }
            }
            Revoked::Everything { .. } => EndingEntry { what: "all", ..EndingEntry::default() },
        };
        let reason = shown_reason(reason, by.as_ref());
        let (operator, caller, provider) = match by {
            Some(Revoker::Operator(name)) => (Some(name), None, None),
            Some(Revoker::Caller(subject)) => (None, Some(subject), None),
            Some(Revoker::Provider(name)) => (None, None, Some(name)),
            Some(Revoker::Grant(_)) | None => (None, None, None),
        };
        EndingEntry { ended_at: at.to_string(), before, reason, operator, caller, provider, ..target }
    }

    /// `None`: the session is not in the store any more.
    fn of_session(family: Option<Family>) -> Self {
        let what = "session";
        let Some(family) = family else { return EndingEntry { what, ..EndingEntry::default() } };
        EndingEntry {
            what: if family.key_hash.is_some() { "apiKey" } else { what },
            sub: Some(family.subject),
            client_id: Some(family.client_id),
            label: Some(family.label),
            address: family.address,
            issuer: family.origin.map(|origin| origin.issuer),
            ..EndingEntry::default()
        }
    }
}
