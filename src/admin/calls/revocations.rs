//! `POST /admin/v1/revocations`: revokes one access token, or many sessions at once.
//!
//! | body | what is revoked |
//! |---|---|
//! | `{"subject", "issuer"?, "before"?}` | all tokens of a subject; `sub` is the same member |
//! | `{"clientId", "subject"?, "before"?}` | all tokens of a client; with `subject`, those of this user |
//! | `{"jti", "issuer"?}` | one access token |
//! | `{"session", "issuer"}` | all tokens of a session at another issuer, by its `sid`, and the sessions that began there |
//! | `{"all": true, "issuer", "before"?}` | all tokens of an issuer |
//! | `{"all": true, "before"?}` | all tokens |
//!
//! The default of `issuer` is the gateway itself, or every issuer with `all`. `before` is a time (RFC 3339), at most
//! now, which is its default: sessions that began at or before that time are revoked, and tokens of other issuers that
//! were issued at or before it.

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::body::read_object;
use crate::admin::state::Admin;
use crate::auth::keyring::KeyUser;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/revocations";

/// Maximum bytes of a `sub`, `jti` or `sid`. A token does not hold a longer one.
const MAX_NAME_SIZE: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationRequest {
    #[serde(alias = "subject")]
    sub: Option<String>,
    jti: Option<String>,
    session: Option<String>,
    #[serde(rename = "clientId")]
    client_id: Option<String>,
    #[serde(default)]
    all: bool,
    issuer: Option<String>,
    before: Option<String>,
}

pub(crate) async fn handle(
    admin: &Admin,
    request: Request<Incoming>,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    if request.method() != Method::POST {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("POST"));
    }
    let body: RevocationRequest = read_object(request).await?;
    let target = target(admin, body, context.at).map_err(|error| Reject::new(Reason::BadParameter, error))?;
    revoke(admin, target, context).await
}

/// `DELETE /admin/v1/subjects/{subject}/tokens`
pub(crate) async fn revoke_subject(
    admin: &Admin,
    subject: String,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    let issuer = admin.broker.settings.issuer.clone();
    revoke(admin, Revoked::Subject { issuer, subject, not_after: context.at }, context).await
}

pub(super) async fn revoke(admin: &Admin, target: Revoked, context: EventContext) -> Result<Response<Body>, Reject> {
    admin.broker.revoke_named(target, context).await?;
    Ok(respond::json(StatusCode::OK, &json!({ "success": true })))
}

fn target(admin: &Admin, body: RevocationRequest, now: UnixTime) -> Result<Revoked, String> {
    let RevocationRequest { sub, jti, session, client_id, all, issuer, before } = body;
    if let Some(unknown) = issuer.as_ref().filter(|issuer| !is_accepted(admin, issuer)) {
        // A response of success for a mistyped issuer would hide that nothing was revoked.
        return Err(format!("the issuer {unknown:?} is not configured"));
    }
    let has_before = before.is_some();
    let not_after = match before {
        None => now,
        Some(text) => UnixTime::parse(&text).ok_or("before is not a time as 2026-11-20T23:05:21Z")?,
    };
    if not_after > now {
        return Err("before is in the future; use the current time or an earlier one".into());
    }
    let own = || admin.broker.settings.issuer.clone();
    if let Some(client_id) = client_id {
        if jti.is_some() || session.is_some() || all {
            return Err("clientId cannot be used with jti, session or all".into());
        }
        if issuer.is_some_and(|issuer| issuer != own()) {
            return Err("clientId is a client of this gateway; leave issuer out".into());
        }
        let subject = sub.map(|subject| sized("sub", subject)).transpose()?;
        return Ok(Revoked::Client { client_id: sized("clientId", client_id)?, subject, not_after });
    }
    match (sub, jti, session, all) {
        (Some(subject), None, None, false) => {
            let issuer = issuer.unwrap_or_else(own);
            Ok(Revoked::Subject { issuer, subject: sized("sub", subject)?, not_after })
        }
        (None, Some(_), None, false) | (None, None, Some(_), false) if has_before => {
            Err("before cannot be used with jti or session".into())
        }
        (None, Some(jti), None, false) => {
            Ok(Revoked::Token { issuer: issuer.unwrap_or_else(own), jti: sized("jti", jti)? })
        }
        (None, None, Some(session), false) => {
            let issuer = issuer.filter(|issuer| *issuer != own()).ok_or(OWN_SESSION)?;
            Ok(Revoked::Session { issuer, session: sized("session", session)? })
        }
        (None, None, None, true) => Ok(match issuer {
            Some(issuer) => Revoked::Issuer { issuer, not_after },
            None => Revoked::Everything { not_after },
        }),
        _ => Err("expected exactly one of sub, clientId, jti, session and \"all\": true".into()),
    }
}

const OWN_SESSION: &str = "session needs the issuer that the session is at; end a session of this gateway by its token \
     id: DELETE /admin/v1/tokens/{tokenId}";

fn is_accepted(admin: &Admin, issuer: &str) -> bool {
    let is_provider = || admin.providers.sources().iter().any(|source| *source.policy.issuer == *issuer);
    admin.broker.keyring.keys().issuers.iter().any(|accepted| *accepted.policy.issuer == *issuer) || is_provider()
}

pub(super) fn sized(member: &str, name: String) -> Result<String, String> {
    match name.len() {
        1..=MAX_NAME_SIZE => Ok(name),
        _ => Err(format!("{member} must have 1 to {MAX_NAME_SIZE} bytes")),
    }
}
