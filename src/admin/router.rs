//! From a request to the call that handles it. Over TCP, `/admin/v1` needs the admin token.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;

use super::access::host;
use super::access::operators::{Operator, Role};
use super::access::sessions::Caller;
use super::calls::{
    api_keys, certificates, clients, configuration, explain, issuers, keys, operator_sessions, rejections, reload,
    revocations, stats, tokens, upstreams,
};
use super::settings::MAX_TOKEN_SIZE;
use super::state::Admin;
use super::{page, probes};
use crate::auth::bearer;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::protocols::tls::ServerTls;
use crate::tokens::audit_event::EventContext;
use crate::types::reject::{Reason, Reject};

/// The client of a connection.
#[derive(Clone)]
pub(super) enum Peer {
    /// A process of the gateway's own user or of root, on the Unix socket.
    Local,
    Remote {
        address: IpAddr,
        tls: Option<Arc<ServerTls>>,
    },
}

pub(super) async fn handle(admin: &Admin, mut request: Request<Incoming>, peer: &Peer) -> Response<Body> {
    // RFC 9110 section 9.3.2: the response to HEAD is that to GET. hyper leaves its body out.
    if *request.method() == Method::HEAD {
        *request.method_mut() = Method::GET;
    }
    let wants_problem = respond::wants_problem(request.headers());
    let request_id = admin.request_ids.next();
    let client = match peer {
        Peer::Local => None,
        Peer::Remote { address, .. } => Some(*address),
    };
    let context = EventContext { client, request: Some(request_id), ..EventContext::from(admin.clock.now()) };
    route(admin, request, peer, context).await.unwrap_or_else(|reject| {
        admin.counters.rejected(reject.reason);
        tracing::debug!(reason = reject.reason.code(), detail = %reject.detail, "admin request rejected");
        // The detail is for a client with the admin token: a rejection before the token check has none.
        respond::reject_with_detail(&reject, request_id, wants_problem)
    })
}

async fn route(
    admin: &Admin,
    request: Request<Incoming>,
    peer: &Peer,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    if let Peer::Remote { tls, .. } = peer {
        host::check(&request, &admin.hosts, tls.as_deref())?;
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => return Ok(probes::health()),
        (&Method::GET, "/readyz") => return Ok(probes::readiness(admin, request.uri()).await),
        (&Method::GET, "/metrics") => return Ok(probes::metrics(admin, request.headers()).await),
        (_, "/healthz" | "/readyz" | "/metrics") => {
            return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD"));
        }
        _ => {}
    }
    if admin.page
        && let Some(file) = page::handle(request.method(), request.uri().path(), request.headers())
    {
        return file;
    }
    let caller = match peer {
        Peer::Local => Caller { operator: Operator::local(), session: None },
        Peer::Remote { address, .. } => identify(admin, request.headers(), *address)?,
    };
    let path = request.uri().path();
    let only_reads = *request.method() == Method::GET
        || [explain::PATH, operator_sessions::PATH, operator_sessions::CURRENT].contains(&path);
    if !only_reads && caller.operator.role != Role::Operate {
        return Err(Reject::new(Reason::AdminRole, "the role view may read and explain"));
    }
    let context = EventContext { operator: Some(caller.operator.name.clone()), ..context };
    match request.uri().path() {
        operator_sessions::PATH => operator_sessions::begin(admin, request.method(), &caller),
        operator_sessions::CURRENT => operator_sessions::current(admin, request.method(), &caller),
        upstreams::PATH => upstreams::handle(admin, request.method()),
        explain::PATH => explain::handle(admin, request).await,
        reload::PATH => reload::handle(admin, request.method(), request.uri(), &context).await,
        revocations::PATH => revocations::handle(admin, request, context).await,
        path if rejections::is_rejection_path(path) => rejections::handle(admin, request.method(), request.uri()),
        configuration::PATH => configuration::handle(admin, request.method()),
        certificates::PATH => certificates::handle(admin, request.method(), context.at),
        issuers::PATH => issuers::handle(admin, request.method(), context.at),
        stats::PATH | stats::STREAM_PATH => stats::handle(admin, request.method(), request.uri(), &caller),
        path if api_keys::is_api_key_path(path) => api_keys::handle(admin, request, context).await,
        path if clients::is_client_path(path) => clients::handle(admin, request, context).await,
        path if keys::is_key_path(path) => keys::handle(admin, request, context).await,
        _ => tokens::handle(admin, request, context).await,
    }
}

/// The request must have exactly one token. The response does not say what is wrong with another one.
///
/// A session goes on while the guesses of others at its address are limited: its token has 256 random bits, so that
/// guesses find none. An operator may have chosen a token that can be guessed.
fn identify(admin: &Admin, headers: &HeaderMap, client: IpAddr) -> Result<Caller, Reject> {
    let now = admin.clock.uptime();
    let token = bearer::find(headers, MAX_TOKEN_SIZE);
    if let Some(caller) = token.as_ref().ok().and_then(|token| admin.sessions.find(token.as_bytes(), now)) {
        return Ok(caller);
    }
    admin.wrong_tokens.check(client, now)?;
    match token {
        Ok(token) => {
            if let Some(operator) = admin.operators.find(token.as_bytes()).cloned() {
                return Ok(Caller { operator, session: None });
            }
            admin.wrong_tokens.count(client, now);
        }
        // A request without a token guesses nothing.
        Err(reject) if reject.reason == Reason::NoToken => {}
        Err(_) => admin.wrong_tokens.count(client, now),
    }
    Err(Reason::AdminTokenWrong.into())
}
