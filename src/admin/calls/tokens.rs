//! `/admin/v1/tokens` and `/admin/v1/subjects`: issue, list and revoke token families.
//!
//! | request | response |
//! |---|---|
//! | `POST /admin/v1/tokens` with an [`IssueRequest`] | 201, the pair and `tokenId` |
//! | `GET /admin/v1/tokens` | `super::token_search` |
//! | `GET /admin/v1/tokens/ended` | `super::ended_tokens` |
//! | `GET /admin/v1/subjects/{subject}/tokens` | 200, `{"tokens": […]}`, the newest first |
//! | `DELETE /admin/v1/subjects/{subject}/tokens` | 200 `{"success": true}`, also if there were none |
//! | `DELETE /admin/v1/tokens/{tokenId}` | 200 `{"success": true}`; 404 |

use std::net::IpAddr;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::body::read_object;
use super::{ended_tokens, revocations, segment, token_entry, token_search};
use crate::admin::state::Admin;
use crate::broker::revoke;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::RevokedBy;
use crate::tokens::audit_event::EventContext;
use crate::tokens::bound::Bound;
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

/// The body of an issue call. Lifetimes are in seconds; the configured lifetime is the maximum.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IssueRequest {
    #[serde(alias = "subject")]
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
    /// The address of the user's device, which only the caller knows.
    address: Option<IpAddr>,
    idle: Option<u64>,
    absolute: Option<u64>,
    /// The thumbprint of the client's key.
    jkt: Option<String>,
    /// The thumbprint of the client's certificate.
    #[serde(rename = "x5t#S256")]
    x5t: Option<String>,
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

pub(crate) async fn handle(
    admin: &Admin,
    request: Request<Incoming>,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    let path = request.uri().path().to_owned();
    let Some(path) = path.strip_prefix("/admin/v1/") else { return Err(Reason::NoRoute.into()) };
    let segments: Vec<&str> = path.split('/').collect();
    match (request.method(), &segments[..]) {
        (&Method::POST, ["tokens"]) => issue(admin, request, context).await,
        (&Method::GET, ["tokens"]) => token_search::handle(admin, request.uri(), context.at).await,
        (_, ["tokens"]) => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD, POST")),
        (&Method::GET, ["tokens", "ended"]) => ended_tokens::handle(admin, request.uri()).await,
        (_, ["tokens", "ended"]) => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD")),
        (&Method::DELETE, ["tokens", id]) => revoke_family(admin, id, context).await,
        (_, ["tokens", _]) => Err(Reject::from(Reason::MethodNotAllowed).allows("DELETE")),
        (&Method::GET, ["subjects", subject, "tokens"]) => {
            list(admin, segment::decode(subject, "subject")?, context.at).await
        }
        (&Method::DELETE, ["subjects", subject, "tokens"]) => {
            revocations::revoke_subject(admin, segment::decode(subject, "subject")?, context).await
        }
        (_, ["subjects", _, "tokens"]) => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD, DELETE")),
        _ => Err(Reason::NoRoute.into()),
    }
}

async fn issue(admin: &Admin, request: Request<Incoming>, context: EventContext) -> Result<Response<Body>, Reject> {
    let body: IssueRequest = read_object(request).await?;
    let login = login(body).map_err(|error| Reject::new(Reason::BadParameter, error))?;
    // The client of this call is a backend: its address is not the user's.
    let context = EventContext { client: login.address, ..context };
    let mut pair = admin.broker.issue(login, context).await?;
    pair.include_token_id();
    Ok(respond::json(StatusCode::CREATED, &pair))
}

fn login(body: IssueRequest) -> Result<Login, String> {
    let thumbprint = |text: Option<String>, wrong: &str| {
        let read = |text: String| Thumbprint::parse(&text).ok_or_else(|| wrong.to_owned());
        text.map(read).transpose()
    };
    let bound_to = Bound {
        key: thumbprint(body.jkt, "jkt is not the SHA-256 thumbprint of a key: 43 characters of base64url (RFC 7638)")?,
        certificate: thumbprint(
            body.x5t,
            "x5t#S256 is not the SHA-256 of a certificate in DER: 43 characters of base64url (RFC 8705)",
        )?,
    };
    let login = Login {
        subject: body.sub,
        prefix_len: 0,
        scope: body.scope,
        audience: match body.aud {
            Audience::One(aud) => vec![aud],
            Audience::Several(auds) => auds,
        },
        client_id: body.client_id,
        claims: body.claims,
        label: body.label,
        address: body.address.map(|address| address.to_canonical()),
        idle: body.idle.map(Duration::from_secs),
        absolute: body.absolute.map(Duration::from_secs),
        bound_to,
    };
    login.check().map_err(|error| error.to_string())?;
    Ok(login)
}

async fn list(admin: &Admin, subject: String, now: UnixTime) -> Result<Response<Body>, Reject> {
    let families = admin.broker.with_timeout(admin.broker.store.families_of(subject)).await?;
    let tokens = token_entry::of(admin, families, now).await?;
    Ok(respond::json(StatusCode::OK, &serde_json::json!({ "tokens": tokens })))
}

async fn revoke_family(admin: &Admin, parameter: &str, context: EventContext) -> Result<Response<Body>, Reject> {
    let family = revoke::named_family(parameter).ok_or(Reason::TokenNotFound)?;
    admin.broker.revoke_family(family, RevokedBy::Admin, context).await?;
    Ok(respond::json(StatusCode::OK, &serde_json::json!({ "success": true })))
}
