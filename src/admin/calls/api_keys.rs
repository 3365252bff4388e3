//! `/admin/v1/api-keys`: issue, list and revoke API keys.
//!
//! | request | response |
//! |---|---|
//! | `POST /admin/v1/api-keys` with an [`IssueRequest`] | 201, the key, which is shown only here |
//! | `GET /admin/v1/api-keys` | 200, `{"apiKeys": […], "next": "…"}` |
//! | `DELETE /admin/v1/api-keys/{keyId}` | 200 `{"success": true}`; 404 |

use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::body::read_object;
use super::cursor::{from_cursor, to_cursor};
use super::query::Query;
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{FoundFamilies, KeySearch, RevokedBy};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::{Family, KeyRate};
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

const PATH: &str = "/admin/v1/api-keys";

const DEFAULT_LIFETIME: Duration = Duration::from_hours(24 * 90);
/// As for the lifetimes of sessions.
const MAX_LIFETIME: Duration = Duration::from_hours(24 * 3650);
/// Bytes of a label.
const MAX_LABEL: usize = 255;

/// The body of an issue call.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IssueRequest {
    #[serde(alias = "subject")]
    sub: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    claims: Map<String, Value>,
    #[serde(default)]
    label: String,
    /// Seconds.
    expires_in: Option<u64>,
    /// Such as `100/min`.
    rate: Option<String>,
}

/// One key, without its secret. Times are RFC 3339.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyEntry {
    key_id: TokenId,
    sub: String,
    scope: String,
    client_id: String,
    claims: Map<String, Value>,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    state: &'static str,
    created_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
}

impl KeyEntry {
    fn new(key: Family, now: UnixTime) -> Self {
        KeyEntry {
            key_id: key.id,
            state: match key.revoked {
                Some(_) => "revoked",
                None if key.is_live(now) => "live",
                None => "expired",
            },
            rate: key.key_rate.map(|rate| rate.to_string()),
            created_at: key.created_at.to_string(),
            expires_at: key.absolute_expiry.to_string(),
            last_used_at: (key.last_used_at > key.created_at).then(|| key.last_used_at.to_string()),
            revoked_at: key.revoked.map(|revoked| revoked.at.to_string()),
            sub: key.subject,
            scope: key.scope,
            client_id: key.client_id,
            claims: key.claims,
            label: key.label,
        }
    }
}

pub(crate) fn is_api_key_path(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) async fn handle(
    admin: &Admin,
    request: Request<Incoming>,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    let path = request.uri().path().to_owned();
    match (request.method(), path.strip_prefix(PATH).unwrap_or_default()) {
        (&Method::POST, "") => issue(admin, request, context).await,
        (&Method::GET, "") => list(admin, request.uri(), context.at).await,
        (_, "") => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD, POST")),
        (&Method::DELETE, id) => revoke(admin, id.trim_start_matches('/'), context).await,
        (_, id) if !id[1..].contains('/') => Err(Reject::from(Reason::MethodNotAllowed).allows("DELETE")),
        _ => Err(Reason::NoRoute.into()),
    }
}

async fn issue(admin: &Admin, request: Request<Incoming>, context: EventContext) -> Result<Response<Body>, Reject> {
    let body: IssueRequest = read_object(request).await?;
    let invalid = |error: String| Reject::new(Reason::BadParameter, error);
    let lifetime = lifetime(body.expires_in).map_err(invalid)?;
    let rate = rate(body.rate.as_deref()).map_err(invalid)?;
    let login = login(body).map_err(invalid)?;
    let issued = admin.broker.issue_api_key(login, lifetime, rate, context).await?;
    Ok(respond::json(StatusCode::CREATED, &issued))
}

fn login(body: IssueRequest) -> Result<Login, String> {
    if body.label.len() > MAX_LABEL {
        return Err(format!("label has {} bytes, at most {MAX_LABEL}", body.label.len()));
    }
    let login = Login {
        subject: body.sub,
        scope: body.scope,
        client_id: body.client_id,
        claims: body.claims,
        label: body.label,
        ..Login::default()
    };
    login.check().map_err(|error| error.to_string())?;
    Ok(login)
}

fn lifetime(expires_in: Option<u64>) -> Result<Duration, String> {
    let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs);
    if (Duration::from_secs(1)..=MAX_LIFETIME).contains(&lifetime) {
        Ok(lifetime)
    } else {
        Err(format!("expiresIn must be from 1 to {} seconds", MAX_LIFETIME.as_secs()))
    }
}

fn rate(text: Option<&str>) -> Result<Option<KeyRate>, String> {
    let invalid = || format!("rate: {}", KeyRate::EXPECTED);
    text.map(|text| KeyRate::parse(text).ok_or_else(invalid)).transpose()
}

async fn list(admin: &Admin, uri: &Uri, now: UnixTime) -> Result<Response<Body>, Reject> {
    let mut query = Query::read(uri)?;
    let subject = query.take("subject");
    let after = query.take("after");
    let limit = query.limit()?;
    query.finish()?;
    let invalid = || Reject::new(Reason::BadParameter, "after: expected `next` of a page of the same list");
    let after = after.map(|cursor| from_cursor(&cursor).ok_or_else(invalid)).transpose()?;
    let search = KeySearch { subject, after, limit };
    let FoundFamilies { families, next } = admin.broker.with_timeout(admin.broker.store.api_keys(search)).await?;
    let keys: Vec<_> = families.into_iter().map(|key| KeyEntry::new(key, now)).collect();
    let mut page = Map::from_iter([("apiKeys".to_owned(), json!(keys))]);
    page.extend(next.map(|next| ("next".to_owned(), json!(to_cursor(&next)))));
    Ok(respond::json(StatusCode::OK, &page))
}

/// Only a key: the id of a session is not found here.
async fn revoke(admin: &Admin, id: &str, context: EventContext) -> Result<Response<Body>, Reject> {
    let id = TokenId::parse(id).ok_or(Reason::ApiKeyNotFound)?;
    let found = admin.broker.with_timeout(admin.broker.store.family(id)).await?;
    if found.is_none_or(|family| family.key_hash.is_none()) {
        return Err(Reason::ApiKeyNotFound.into());
    }
    admin.broker.revoke_family(id, RevokedBy::Admin, context).await?;
    Ok(respond::json(StatusCode::OK, &json!({ "success": true })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_always_expires() {
        let max = MAX_LIFETIME.as_secs();
        assert_eq!(lifetime(None), Ok(DEFAULT_LIFETIME));
        for (expires_in, is_valid) in [(0, false), (1, true), (max, true), (max + 1, false), (u64::MAX, false)] {
            assert_eq!(lifetime(Some(expires_in)).is_ok(), is_valid, "{expires_in}");
        }
    }

    #[test]
    fn only_its_own_paths_belong_to_the_call() {
        for (path, is_own) in
            [(PATH, true), ("/admin/v1/api-keys/x", true), ("/admin/v1/api-keysx", false), ("/admin/v1/keys", false)]
        {
            assert_eq!(is_api_key_path(path), is_own, "{path}");
        }
    }
}
