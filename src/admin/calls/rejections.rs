//! `/admin/v1/rejections`: why requests were rejected, or why their responses broke off.
//!
//! | request | response |
//! |---|---|
//! | `GET /admin/v1/rejections` | 200, `{"rejections": […]}`, the newest first |
//! | `GET /admin/v1/rejections/{requestId}` | 200, one of them; 404 |

use std::net::IpAddr;

use http::{Method, Response, StatusCode, Uri};
use serde::Serialize;

use super::query::Query;
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::telemetry::recent_rejections::{Filter, Rejection};
use crate::types::ids::{RequestId, TokenId};
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/rejections";

#[derive(Serialize)]
struct List {
    rejections: Vec<RejectionEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RejectionEntry {
    request_id: RequestId,
    /// RFC 3339.
    time: String,
    /// 0: the client disconnected before the response.
    status: u16,
    reason: &'static str,
    /// The text of the response.
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Box<str>>,
    /// If true, the request was forwarded, because its route has `enforce = false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    observed: bool,
    /// If true, the request was forwarded, and its response broke off after its head.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    broken: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    method: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Box<str>>,
    path: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<TokenId>,
    /// Of a client that asks a user, or redeems a code: as it sent them.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    /// What to change, where the reason tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
}

/// Returns true if this module handles `path`.
pub(crate) fn is_rejection_path(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) fn handle(admin: &Admin, method: &Method, uri: &Uri) -> Result<Response<Body>, Reject> {
    let id = uri.path().strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/'));
    if id.is_some_and(|id| id.contains('/')) {
        return Err(Reason::NoRoute.into());
    }
    if *method != Method::GET {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD"));
    }
    match id {
        Some(id) => {
            let found = admin.rejections.find(id).ok_or(Reject::from(Reason::RejectionNotFound))?;
            Ok(respond::json(StatusCode::OK, &RejectionEntry::of(found)))
        }
        None => list(admin, uri),
    }
}

fn list(admin: &Admin, uri: &Uri) -> Result<Response<Body>, Reject> {
    let mut query = Query::read(uri)?;
    let reason = query.take("reason").map(|code| {
        let found = Reason::ALL.iter().copied().find(|reason| reason.code() == code);
        found.ok_or_else(|| Reject::new(Reason::BadParameter, "reason: expected one of deploy/troubleshooting.md"))
    });
    let client = query
        .take("client")
        .map(|text| text.parse().map_err(|_| Reject::new(Reason::BadParameter, "client: expected an IP address")));
    let filter = Filter {
        reason: reason.transpose()?,
        client: client.transpose()?,
        subject: query.take("subject"),
        route: query.take("route"),
    };
    let limit = query.limit()?;
    query.finish()?;
    let found = admin.rejections.newest(&filter, limit);
    Ok(respond::json(StatusCode::OK, &List { rejections: found.into_iter().map(RejectionEntry::of).collect() }))
}

impl RejectionEntry {
    fn of(rejection: Rejection) -> Self {
        let asked = rejection.oauth.map(|asked| *asked).unwrap_or_default();
        RejectionEntry {
            request_id: rejection.request_id,
            time: rejection.time.to_string(),
            status: rejection.status,
            reason: rejection.reason.code(),
            message: rejection.reason.message(),
            detail: rejection.detail,
            observed: rejection.is_observed,
            broken: rejection.is_broken,
            client: rejection.client,
            method: rejection.method,
            host: rejection.host,
            path: rejection.path,
            route: rejection.route.map(|route| route.to_string()),
            subject: rejection.subject,
            token_id: rejection.token_id,
            client_id: asked.client_id,
            redirect_uri: asked.redirect_uri,
            resource: asked.resource,
            change: rejection.reason.change(),
        }
    }
}
