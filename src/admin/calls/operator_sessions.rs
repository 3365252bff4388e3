//! `/admin/v1/sessions`: a short token in place of the token of an operator, for a page.
//!
//! | request | response |
//! |---|---|
//! | `POST /admin/v1/sessions` | 201, `{"token", "operator", "role", "expiresAt"}` |
//! | `GET /admin/v1/sessions/current` | 200, `{"operator", "role", "expiresAt"?}` |
//! | `DELETE /admin/v1/sessions/current` | 200 `{"success": true}` |
//!
//! A session cannot begin another one, so that none outlives `admin.session_lifetime`.

use std::time::Duration;

use http::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::admin::access::sessions::Caller;
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/sessions";
pub(crate) const CURRENT: &str = "/admin/v1/sessions/current";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OperatorSessionEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    operator: String,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// `POST /admin/v1/sessions`
pub(crate) fn begin(admin: &Admin, method: &Method, caller: &Caller) -> Result<Response<Body>, Reject> {
    if *method != Method::POST {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("POST"));
    }
    if caller.session.is_some() {
        return Err(Reject::new(Reason::AdminRole, "a session cannot begin another one: send the operator's token"));
    }
    let token = admin.sessions.begin(&caller.operator, admin.clock.uptime());
    let entry = OperatorSessionEntry { token: Some(token), ..entry(admin, caller, Some(admin.sessions.lifetime)) };
    Ok(respond::json(StatusCode::CREATED, &entry))
}

/// `/admin/v1/sessions/current`
pub(crate) fn current(admin: &Admin, method: &Method, caller: &Caller) -> Result<Response<Body>, Reject> {
    match *method {
        Method::GET => {
            let left = caller.session.map(|session| session.left);
            Ok(respond::json(StatusCode::OK, &entry(admin, caller, left)))
        }
        Method::DELETE => {
            if let Some(session) = &caller.session {
                admin.sessions.end(session, admin.clock.uptime());
            }
            Ok(respond::json(StatusCode::OK, &json!({ "success": true })))
        }
        _ => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD, DELETE")),
    }
}

fn entry(admin: &Admin, caller: &Caller, left: Option<Duration>) -> OperatorSessionEntry {
    OperatorSessionEntry {
        token: None,
        operator: caller.operator.name.to_string(),
        role: caller.operator.role.name(),
        expires_at: left.map(|left| (admin.clock.now() + left).to_string()),
    }
}
