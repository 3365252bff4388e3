//! `POST /admin/v1/revocations`: one access token, or many logins with one word.
//!
//! | body | what dies |
//! |---|---|
//! | `{"sub", "issuer"?, "before"?}` | everything of a subject |
//! | `{"jti", "issuer"?}` | one access token |
//! | `{"all": true, "issuer", "before"?}` | everything of an issuer |
//! | `{"all": true, "before"?}` | everything |
//!
//! Without `issuer`, the gateway itself is meant, except for `all`. `before` is a time (RFC 3339) that is not ahead: what was
//! issued at it or before dies, and what is issued later lives. Without it, that is now.

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::{Admin, read_object};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Longer names would not fit in a token.
const MOST_NAME: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationRequest {
    sub: Option<String>,
    jti: Option<String>,
    #[serde(default)]
    all: bool,
    issuer: Option<String>,
    before: Option<String>,
}

pub(super) async fn answer(
    admin: &Admin,
    request: Request<Incoming>,
    occasion: EventContext,
) -> Result<Response<Body>, Reject> {
    let wanted: RevocationRequest = read_object(request).await?;
    let what = named(admin, wanted, occasion.at).map_err(|fault| Reject::new(Reason::BadParameter, fault))?;
    revoke(admin, what, occasion).await
}

/// `DELETE /admin/v1/subjects/{sub}/tokens`
pub(super) async fn everything_of(
    admin: &Admin,
    subject: String,
    occasion: EventContext,
) -> Result<Response<Body>, Reject> {
    let issuer = admin.broker.settings.issuer.clone();
    revoke(admin, Revoked::Subject { issuer, subject, not_after: occasion.at }, occasion).await
}

async fn revoke(admin: &Admin, what: Revoked, occasion: EventContext) -> Result<Response<Body>, Reject> {
    admin.broker.revoke_named(what, occasion).await?;
    Ok(respond::json(StatusCode::OK, &json!({ "success": true })))
}

fn named(admin: &Admin, wanted: RevocationRequest, now: UnixTime) -> Result<Revoked, String> {
    let RevocationRequest { sub, jti, all, issuer, before } = wanted;
    if let Some(unknown) = issuer.as_ref().filter(|issuer| !is_accepted(admin, issuer)) {
        // A mistyped name must not be answered as if something had died.
        return Err(format!("no issuer {unknown:?} is accepted here"));
    }
    let has_before = before.is_some();
    let not_after = match before {
        None => now,
        Some(text) => UnixTime::parse(&text).ok_or("before is not a time such as 2026-11-20T23:05:21Z")?,
    };
    if not_after > now {
        return Err("before lies ahead: what does not exist yet cannot be revoked".into());
    }
    let own = || admin.broker.settings.issuer.clone();
    match (sub, jti, all) {
        (Some(subject), None, false) => {
            let issuer = issuer.unwrap_or_else(own);
            Ok(Revoked::Subject { issuer, subject: usable("sub", subject)?, not_after })
        }
        (None, Some(_), false) if has_before => Err("before has no meaning for one token".into()),
        (None, Some(jti), false) => Ok(Revoked::Token { issuer: issuer.unwrap_or_else(own), jti: usable("jti", jti)? }),
        (None, None, true) => Ok(match issuer {
            Some(issuer) => Revoked::Issuer { issuer, not_after },
            None => Revoked::Everything { not_after },
        }),
        _ => Err("name one of sub, jti, and \"all\": true".into()),
    }
}

fn is_accepted(admin: &Admin, issuer: &str) -> bool {
    admin.broker.keyring.keys().issuers.iter().any(|accepted| *accepted.policy.issuer == *issuer)
}

fn usable(member: &str, name: String) -> Result<String, String> {
    match name.len() {
        1..=MOST_NAME => Ok(name),
        _ => Err(format!("{member} must have 1 to {MOST_NAME} bytes")),
    }
}
