//! From a request to the call that handles it. `/admin/v1` needs the admin token.

use std::net::IpAddr;

use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;

use super::settings::MAX_TOKEN_SIZE;
use super::state::Admin;
use super::{keys, probes, reload, revocations, tokens, upstreams};
use crate::auth::bearer;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::types::reject::{Reason, Reject};

pub(super) async fn handle(admin: &Admin, request: Request<Incoming>, client: IpAddr) -> Response<Body> {
    let wants_problem = respond::wants_problem(request.headers());
    let request_id = admin.request_ids.next();
    let context = EventContext::new(admin.clock.now(), client, request_id);
    route(admin, request, context).await.unwrap_or_else(|reject| {
        tracing::debug!(reason = reject.reason.code(), detail = %reject.detail, "admin request rejected");
        // The detail is for a client with the admin token: a rejection before the token check has none.
        respond::reject_with_detail(&reject, request_id, wants_problem)
    })
}

async fn route(admin: &Admin, request: Request<Incoming>, context: EventContext) -> Result<Response<Body>, Reject> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => return Ok(probes::health()),
        (&Method::GET, "/readyz") => return Ok(probes::readiness(admin).await),
        (&Method::GET, "/metrics") => return Ok(probes::metrics(admin)),
        (_, "/healthz" | "/readyz" | "/metrics") => return Err(Reject::from(Reason::MethodNotAllowed).allow("GET")),
        _ => {}
    }
    check_token(admin, request.headers())?;
    match request.uri().path() {
        upstreams::PATH => upstreams::handle(admin, request.method()),
        reload::PATH => reload::handle(admin, request.method()).await,
        revocations::PATH => revocations::handle(admin, request, context).await,
        path if keys::is_key_path(path) => keys::handle(admin, request, context).await,
        _ => tokens::handle(admin, request, context).await,
    }
}

/// The request must have exactly one token. The response does not say what is wrong with another one.
fn check_token(admin: &Admin, headers: &HeaderMap) -> Result<(), Reject> {
    match bearer::find(headers, MAX_TOKEN_SIZE) {
        Ok(token) if admin.token.matches(token.as_bytes()) => Ok(()),
        _ => Err(Reason::AdminTokenWrong.into()),
    }
}
