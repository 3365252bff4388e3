//! `/admin/v1/keys`: the keys that sign our tokens.
//!
//! | request | answer |
//! |---|---|
//! | `GET /admin/v1/keys` | 200, `{"keys": […], "nextRotation"?}`, newest first |
//! | `POST /admin/v1/keys/rotate` `{"now"?}` | 200, as above: the next key is published, and signs after `key_ahead` or now |
//! | `POST /admin/v1/keys/{kid}/revoke` `{"mayRefresh"?}` | 200, as above; 404 |

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Admin, PATIENCE};
use crate::broker::BODY_LIMIT;
use crate::broker::keys::KeyStatus;
use crate::protocols::http::body::{self, Body};
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::tokens::jwt::json;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RotateRequest {
    /// It signs at once. Others that check our tokens may not know it yet.
    #[serde(default)]
    now: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RevokeRequest {
    /// Its tokens are still taken as the Bearer of a refresh, so that nobody has to log in again.
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
    /// The number of the root secret that seals it.
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
}

/// Is this path one of these?
pub(super) fn is_here(path: &str) -> bool {
    path == "/admin/v1/keys" || path.starts_with("/admin/v1/keys/")
}

pub(super) async fn answer(
    admin: &Admin,
    request: Request<Incoming>,
    occasion: EventContext,
) -> Result<Response<Body>, Reject> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.strip_prefix("/admin/v1/").unwrap_or_default().split('/').collect();
    let (keys, now) = (admin.broker.own_keys.clone(), occasion.at);
    match (request.method(), &segments[..]) {
        (&Method::GET, ["keys"]) => {}
        (_, ["keys"]) => return Err(Reject::from(Reason::MethodNotAllowed).allow("GET")),
        (&Method::POST, ["keys", "rotate"]) => {
            let wanted: RotateRequest = read(request).await?;
            keys.rotate(wanted.now, occasion).await?;
        }
        (&Method::POST, ["keys", kid, "revoke"]) => {
            let wanted: RevokeRequest = read(request).await?;
            keys.revoke((*kid).to_owned(), wanted.may_refresh, occasion).await?;
        }
        (_, ["keys", "rotate"] | ["keys", _, "revoke"]) => {
            return Err(Reject::from(Reason::MethodNotAllowed).allow("POST"));
        }
        _ => return Err(Reason::NoRoute.into()),
    }
    Ok(respond::json(StatusCode::OK, &list(admin, now)))
}

fn list(admin: &Admin, now: UnixTime) -> List {
    let (keys, next) = admin.broker.own_keys.list(now);
    List { keys: keys.into_iter().map(KeyEntry::of).collect(), next_rotation: next.map(|time| time.to_string()) }
}

impl KeyEntry {
    fn of(key: KeyStatus) -> Self {
        let stored = key.stored.as_ref();
        let time = |time: Option<UnixTime>| time.map(|time| time.to_string());
        KeyEntry {
            root: stored.map(|stored| stored.root),
            created_at: time(stored.map(|stored| stored.created_at)),
            activated_at: time(stored.and_then(|stored| stored.activated_at)),
            retired_at: time(stored.and_then(|stored| stored.retired_at)),
            revoked_at: time(stored.and_then(|stored| stored.revoked_at)),
            kid: key.kid,
            algorithm: key.algorithm,
            state: key.state,
        }
    }
}

/// A body may be left out: everything in it has a default.
async fn read<T: DeserializeOwned + Default>(request: Request<Incoming>) -> Result<T, Reject> {
    let bad = |fault: String| Reject::new(Reason::BadParameter, fault);
    let incoming = Body::incoming(request.into_body()).with_idle_timeout(PATIENCE);
    let content = body::read(incoming, BODY_LIMIT).await?;
    if content.is_empty() {
        return Ok(T::default());
    }
    let object = json::object(&content).map_err(|error| bad(error.to_string()))?;
    serde_json::from_value(object.into()).map_err(|error| bad(error.to_string()))
}
