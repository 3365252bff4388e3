//! `/admin/v1/keys`: the signing keys of the gateway.
//!
//! | request | response |
//! |---|---|
//! | `GET /admin/v1/keys` | 200, `{"keys": […], "nextRotation"?}`, the newest first |
//! | `POST /admin/v1/keys/rotate` `{"now"?}` | 200, as above: the next key signs after `tokens.key_ahead`, or now |
//! | `POST /admin/v1/keys/{kid}/revoke` `{"mayRefresh"?}` | 200, as above; 404; 409: it is revoked for good |

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use super::body::read_optional_object;
use super::certificates::days_left;
use crate::admin::state::Admin;
use crate::broker::keys::KeyStatus;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RotateRequest {
    /// If true, the next key signs at once. Services that cache the key set may not know it yet.
    #[serde(default)]
    now: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RevokeRequest {
    /// If true, a refresh still accepts the tokens of this key, so that users need not log in again.
    #[serde(default)]
    may_refresh: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    keys: Vec<KeyEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_rotation: Option<String>,
}

/// Times are RFC 3339.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyEntry {
    kid: String,
    algorithm: String,
    state: &'static str,
    /// The number of the root secret that seals the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    /// When the state changes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step_at: Option<String>,
    /// Whole days until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    days_left: Option<i64>,
    /// Only of a revoked key. If true, a refresh still accepts its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_refresh: Option<bool>,
}

/// Returns true if this module handles `path`.
pub(crate) fn is_key_path(path: &str) -> bool {
    path == "/admin/v1/keys" || path.starts_with("/admin/v1/keys/")
}

pub(crate) async fn handle(
    admin: &Admin,
    request: Request<Incoming>,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.strip_prefix("/admin/v1/").unwrap_or_default().split('/').collect();
    let keys = admin.broker.own_keys.clone();
    let now = context.at;
    match (request.method(), &segments[..]) {
        (&Method::GET, ["keys"]) => {}
        (_, ["keys"]) => return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD")),
        (&Method::POST, ["keys", "rotate"]) => {
            let body: RotateRequest = read_optional_object(request).await?;
            keys.rotate(body.now, context).await?;
        }
        (&Method::POST, ["keys", kid, "revoke"]) => {
            let body: RevokeRequest = read_optional_object(request).await?;
            keys.revoke((*kid).to_owned(), body.may_refresh, context).await?;
        }
        (_, ["keys", "rotate"] | ["keys", _, "revoke"]) => {
            return Err(Reject::from(Reason::MethodNotAllowed).allows("POST"));
        }
        _ => return Err(Reason::NoRoute.into()),
    }
    Ok(respond::json(StatusCode::OK, &list(admin, now)))
}

fn list(admin: &Admin, now: UnixTime) -> List {
    let (keys, next) = admin.broker.own_keys.list(now);
    let keys = keys.into_iter().map(|key| KeyEntry::of(key, now)).collect();
    List { keys, next_rotation: next.map(|time| time.to_string()) }
}

impl KeyEntry {
    fn of(key: KeyStatus, now: UnixTime) -> Self {
        let stored = key.stored.as_ref();
        let time = |time: Option<UnixTime>| time.map(|time| time.to_string());
        KeyEntry {
            root: stored.map(|stored| stored.root),
            created_at: time(stored.map(|stored| stored.created_at)),
            activated_at: time(stored.and_then(|stored| stored.activated_at)),
            retired_at: time(stored.and_then(|stored| stored.retired_at)),
            revoked_at: time(stored.and_then(|stored| stored.revoked_at)),
            next_step_at: time(key.next_step),
            days_left: key.next_step.map(|next| days_left(next.as_secs(), now)),
            may_refresh: stored
                .filter(|stored| stored.revoked_at.is_some())
                .map(|stored| !stored.is_revoked_for_good()),
            kid: key.kid,
            algorithm: key.algorithm,
            state: key.state,
        }
    }
}
