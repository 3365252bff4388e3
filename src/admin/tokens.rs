//! `/admin/v1`: issue, list and revoke token families.
//!
//! | request | answer |
//! |---|---|
//! | `POST /admin/v1/tokens` `{"sub", "scope"?, "aud"?, "clientId"?, "claims"?, "label"?, "address"?, "idle"?, "absolute"?}` | 201, the pair and `tokenId` |
//! | `GET /admin/v1/subjects/{sub}/tokens` | 200, `{"tokens": […]}`, newest first |
//! | `DELETE /admin/v1/subjects/{sub}/tokens` | 200 `{"success": true}`, whether there were any or not |
//! | `DELETE /admin/v1/tokens/{tokenId}` | 200 `{"success": true}`; 404 |

use std::net::IpAddr;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Admin, read_object, revocations};
use crate::broker::revoke;
use crate::protocols::http::body::Body;
use crate::protocols::http::{path, respond};
use crate::store::RevokedBy;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::{Family, RevokeReason};
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// The body of an issue call. Lifetimes are in seconds; a longer one than the configured one is that one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IssueRequest {
    sub: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    aud: Audience,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    claims: Map<String, Value>,
    #[serde(default)]
    label: String,
    /// Of the user's device, which the caller knows and the gateway does not.
    address: Option<IpAddr>,
    idle: Option<u64>,
    absolute: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Audience::Several(Vec::new())
    }
}

/// One family as an operator or a "your devices" page sees it. Times are RFC 3339.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenEntry {
    token_id: TokenId,
    sub: String,
    scope: String,
    client_id: String,
    label: String,
    /// Where it was used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    /// Why it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<RevokeReason>,
    created_at: String,
    last_used_at: String,
    idle_expiry: String,
    absolute_expiry: String,
}

pub(super) async fn answer(
    admin: &Admin,
    request: Request<Incoming>,
    occasion: EventContext,
) -> Result<Response<Body>, Reject> {
    let place = request.uri().path().to_owned();
    let Some(place) = place.strip_prefix("/admin/v1/") else { return Err(Reason::NoRoute.into()) };
    let segments: Vec<&str> = place.split('/').collect();
    match (request.method(), &segments[..]) {
        (&Method::POST, ["tokens"]) => issue(admin, request, occasion).await,
        (_, ["tokens"]) => Err(Reject::from(Reason::MethodNotAllowed).allow("POST")),
        (&Method::DELETE, ["tokens", id]) => revoke_one(admin, id, occasion).await,
        (_, ["tokens", _]) => Err(Reject::from(Reason::MethodNotAllowed).allow("DELETE")),
        (&Method::GET, ["subjects", subject, "tokens"]) => list(admin, named_subject(subject)?, occasion.at).await,
        (&Method::DELETE, ["subjects", subject, "tokens"]) => {
            revocations::everything_of(admin, named_subject(subject)?, occasion).await
        }
        (_, ["subjects", _, "tokens"]) => Err(Reject::from(Reason::MethodNotAllowed).allow("GET, DELETE")),
        (&Method::POST, ["revocations"]) => revocations::answer(admin, request, occasion).await,
        (_, ["revocations"]) => Err(Reject::from(Reason::MethodNotAllowed).allow("POST")),
        _ => Err(Reason::NoRoute.into()),
    }
}

async fn issue(admin: &Admin, request: Request<Incoming>, occasion: EventContext) -> Result<Response<Body>, Reject> {
    let wanted: IssueRequest = read_object(request).await?;
    let login = login(wanted).map_err(|fault| Reject::new(Reason::BadParameter, fault))?;
    // The caller is a backend; where it is says nothing about the user.
    let occasion = EventContext { client: login.address, ..occasion };
    let mut pair = admin.broker.issue(login, occasion).await?;
    pair.include_token_id();
    Ok(respond::json(StatusCode::CREATED, &pair))
}

fn login(wanted: IssueRequest) -> Result<Login, String> {
    let login = Login {
        subject: wanted.sub,
        scope: wanted.scope,
        audience: match wanted.aud {
            Audience::One(aud) => vec![aud],
            Audience::Several(auds) => auds,
        },
        client_id: wanted.client_id,
        claims: wanted.claims,
        label: wanted.label,
        address: wanted.address.map(|address| address.to_canonical()),
        idle: wanted.idle.map(Duration::from_secs),
        absolute: wanted.absolute.map(Duration::from_secs),
    };
    login.check().map_err(|error| error.to_string())?;
    Ok(login)
}

fn named_subject(segment: &str) -> Result<String, Reject> {
    let subject = String::from_utf8(path::decode(segment.as_bytes()).into_owned());
    let subject = subject.map_err(|_| Reject::new(Reason::BadParameter, "the subject is not UTF-8"))?;
    match subject.is_empty() {
        true => Err(Reject::new(Reason::BadParameter, "the subject is empty")),
        false => Ok(subject),
    }
}

async fn list(admin: &Admin, subject: String, now: UnixTime) -> Result<Response<Body>, Reject> {
    let families = admin.broker.with_timeout(admin.broker.store.families_of(subject)).await?;
    let tokens: Vec<TokenEntry> = families.into_iter().map(|family| TokenEntry::of(family, now)).collect();
    Ok(respond::json(StatusCode::OK, &serde_json::json!({ "tokens": tokens })))
}

async fn revoke_one(admin: &Admin, parameter: &str, occasion: EventContext) -> Result<Response<Body>, Reject> {
    let family = revoke::named_family(parameter).ok_or(Reason::TokenNotFound)?;
    admin.broker.revoke_family(family, RevokedBy::Admin, occasion).await?;
    Ok(respond::json(StatusCode::OK, &serde_json::json!({ "success": true })))
}

impl TokenEntry {
    fn of(family: Family, now: UnixTime) -> Self {
        TokenEntry {
            token_id: family.id,
            state: match family.revoked {
                Some(_) => "revoked",
                None if family.is_live(now) => "live",
                None => "expired",
            },
            revoked_at: family.revoked.map(|revoked| revoked.at.to_string()),
            reason: family.revoked.map(|revoked| revoked.reason),
            sub: family.subject,
            scope: family.scope,
            client_id: family.client_id,
            label: family.label,
            address: family.address,
            created_at: family.created_at.to_string(),
            last_used_at: family.last_used_at.to_string(),
            idle_expiry: family.idle_expiry.to_string(),
            absolute_expiry: family.absolute_expiry.to_string(),
        }
    }
}
