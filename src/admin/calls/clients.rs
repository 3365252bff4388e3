//! `/admin/v1/clients`: the clients of OAuth.
//!
//! | request | response |
//! |---|---|
//! | `GET /admin/v1/clients` | 200, `{"clients": […]}`, those with the most live sessions first |
//! | `DELETE /admin/v1/clients/{clientId}/tokens` | 200 `{"success": true}`, also if there were none |

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::json;

use super::known_clients::KnownClients;
use super::query::Query;
use super::{revocations, segment};
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::tokens::authorization::{client_document, client_registration};
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

const PATH: &str = "/admin/v1/clients";

/// Maximum number of clients with live sessions in the list.
const MAX_LISTED: usize = 1_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientEntry {
    client_id: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    live: u64,
    denied: bool,
}

pub(crate) fn is_client_path(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) async fn handle(
    admin: &Admin,
    request: Request<Incoming>,
    context: EventContext,
) -> Result<Response<Body>, Reject> {
    let rest = request.uri().path().strip_prefix(PATH).unwrap_or_default();
    if rest.is_empty() {
        return match *request.method() {
            Method::GET => list(admin, context.at).await,
            _ => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD")),
        };
    }
    let named = rest.strip_prefix('/').and_then(|rest| rest.strip_suffix("/tokens"));
    let Some(client_id) = named.filter(|segment| !segment.contains('/')) else {
        return Err(Reason::NoRoute.into());
    };
    if request.method() != Method::DELETE {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("DELETE"));
    }
    let client_id = segment::decode(client_id, "client id")?;
    let mut query = Query::read(request.uri())?;
    let subject = query.take("subject");
    query.finish()?;
    let too_long = |error| Reject::new(Reason::BadParameter, error);
    let subject = subject.map(|subject| revocations::sized("subject", subject)).transpose().map_err(too_long)?;
    let client_id = revocations::sized("clientId", client_id).map_err(too_long)?;
    revocations::revoke(admin, Revoked::Client { client_id, subject, not_after: context.at }, context).await
}

async fn list(admin: &Admin, now: UnixTime) -> Result<Response<Body>, Reject> {
    let live = admin.broker.with_timeout(admin.broker.store.live_clients(now, MAX_LISTED)).await?;
    let KnownClients { registered, documents, denied } = (admin.known_clients)();
    let names: BTreeMap<String, Option<String>> = documents.into_iter().collect();
    let with_sessions: BTreeSet<String> = live.iter().map(|client| client.client_id.clone()).collect();
    let without: BTreeSet<&String> =
        registered.iter().chain(names.keys()).filter(|id| !with_sessions.contains(*id)).collect();
    let counted = live.iter().map(|client| (&client.client_id, client.live));
    let all = counted.chain(without.into_iter().map(|client_id| (client_id, 0)));
    let entry = |(client_id, live): (&String, u64)| ClientEntry {
        client_id: client_id.clone(),
        source: source(client_id, &registered),
        name: names.get(client_id).cloned().flatten(),
        live,
        denied: denied.check(client_id, &admin.broker.roots).is_err(),
    };
    let clients: Vec<ClientEntry> = all.map(entry).collect();
    Ok(respond::json(StatusCode::OK, &json!({ "clients": clients })))
}

/// Why the gateway knows a client with this id.
fn source(client_id: &str, registered: &[String]) -> &'static str {
    if registered.iter().any(|known| known == client_id) {
        return "file";
    }
    if client_id.starts_with(client_registration::PREFIX) {
        return "registration";
    }
    if client_document::host_of(client_id).is_ok() { "document" } else { "other" }
}
