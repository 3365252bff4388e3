//! Fetches the documents of clients that are described at their URL (Client ID Metadata Documents). A stranger chooses
//! the URL, so that each fetch is bounded: the host must be allowed, and its address public; one fetch for each URL at
//! a time, few in all, and few for each host and each client address. Failures are never kept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::flights::{Flights, flight_key};
use crate::limits::limiter::{Key, Limiter, Rate};
use crate::protocols::http::client::{self, Limits, USER_AGENT};
use crate::protocols::http::media_type;
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::authorization::client_document::{self, ClientDocument};
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Maximum number of documents that are kept.
const MAX_KEPT: usize = 1_000;

/// How long a document is kept, whatever its response says.
const KEPT: Duration = Duration::from_mins(15);
/// How long after that it serves while it cannot be fetched: a flood of other URLs of its host must not stop its users.
const STALE: Duration = Duration::from_hours(24);

/// Maximum size of a document (section 6.6 of the draft recommends 5 KB).
const MAX_SIZE: usize = 5 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Maximum number of fetches at the same time.
const MAX_FETCHES: usize = 4;
/// For each host and address of a client: 10 a minute.
const PER_HOST: Rate = Rate { burst: 10, interval: Duration::from_secs(6) };
/// For each address of a client: 60 a minute.
const PER_ADDRESS: Rate = Rate { burst: 60, interval: Duration::from_secs(1) };

/// `oauth.client_documents`
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentSettings {
    /// The hosts of the documents. `None`: any with a public address.
    pub hosts: Option<Vec<String>>,
    /// `oauth.client_documents_ca_file`
    pub ca_file: Option<PathBuf>,
}

type Outcome = Result<Arc<ClientDocument>, (Reason, String)>;

/// Shared by all workers, and outlives a reload.
pub struct ClientDocuments {
    kept: Mutex<HashMap<String, Kept>>,
    fetches: Flights<Outcome>,
    running: Semaphore,
    per_host: Limiter,
    per_address: Limiter,
}

struct Kept {
    document: Arc<ClientDocument>,
    until: Uptime,
}

impl Default for ClientDocuments {
    fn default() -> Self {
        ClientDocuments {
            kept: Mutex::default(),
            fetches: Flights::default(),
            running: Semaphore::new(MAX_FETCHES),
            per_host: Limiter::new(PER_HOST),
            per_address: Limiter::new(PER_ADDRESS),
        }
    }
}

impl ClientDocuments {
    /// The client that the document at this URL describes. `client`: the address of the browser that brings the URL.
    pub async fn find(
        &self,
        client_id: &str,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
    ) -> Result<Arc<ClientDocument>, Reject> {
        let host = client_document::host_of(client_id);
        let host = host.map_err(|wrong| Reject::new(Reason::UnknownClient, wrong))?;
        let is_named = settings.hosts.as_ref().is_some_and(|hosts| hosts.iter().any(|known| known == host));
        if settings.hosts.is_some() && !is_named {
            let detail = format!("{host} is not in oauth.client_documents");
            return Err(Reject::new(Reason::UnknownClient, detail));
        }
        if let Some(document) = self.kept(client_id, now) {
            return Ok(document);
        }
        let seat = self.fetches.join(flight_key("", client_id));
        let mut outcome = seat.flight.lock().await;
        if outcome.is_none() {
            let fetched = self.fetch(client_id, host, is_named, settings, client, now).await;
            let fetched = match (fetched, self.stale(client_id, now)) {
                (Err(reject), Some(stale)) if reject.reason == Reason::ClientDocument => Ok(stale),
                (fetched, _) => fetched,
            };
            *outcome = Some(fetched.map_err(|reject| (reject.reason, reject.detail.into_owned())));
            seat.close();
        }
        match outcome.as_ref() {
            Some(Ok(document)) => Ok(document.clone()),
            Some(Err((reason, detail))) => Err(Reject::new(*reason, detail.clone())),
            None => Err(Reject::new(Reason::Internal, "a fetch has no outcome")),
        }
    }

    /// The clients with a document in the memory, each with the name that the document gives it.
    pub fn known(&self) -> Vec<(String, Option<String>)> {
        let kept = self.kept.lock();
        kept.iter().map(|(client_id, kept)| (client_id.clone(), kept.document.name.clone())).collect()
    }

    fn kept(&self, client_id: &str, now: Uptime) -> Option<Arc<ClientDocument>> {
        let kept = self.kept.lock();
        kept.get(client_id).filter(|kept| now < kept.until).map(|kept| kept.document.clone())
    }

    fn stale(&self, client_id: &str, now: Uptime) -> Option<Arc<ClientDocument>> {
        let kept = self.kept.lock();
        kept.get(client_id).filter(|kept| now < kept.until + STALE).map(|kept| kept.document.clone())
    }

    async fn fetch(
        &self,
        client_id: &str,
        host: &str,
        is_named: bool,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
    ) -> Result<Arc<ClientDocument>, Reject> {
        let busy = |wait: Duration| {
            let reject = Reject::new(Reason::ClientDocument, "too many documents of clients are fetched");
            reject.with_retry_after(wait)
        };
        self.per_address.try_take(client, now).map_err(busy)?;
        self.per_host.try_take(key_of(host, client), now).map_err(busy)?;
        let _running = self.running.try_acquire().map_err(|_| busy(Duration::from_secs(1)))?;
        // A host that the operator names may be in a private network.
        let reach = if is_named { Reach::Loopback } else { Reach::Public };
        let url = SecureUrl::parse(client_id, false);
        let url = url.map_err(|error| Reject::new(Reason::UnknownClient, error.to_string()))?;
        let response = get(&url, settings, reach).await?;
        let document = read(client_id, &response)?;
        let document = Arc::new(document);
        self.keep(client_id, document.clone(), now);
        Ok(document)
    }

    fn keep(&self, client_id: &str, document: Arc<ClientDocument>, now: Uptime) {
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, kept| now < kept.until + STALE);
        }
        if kept.len() >= MAX_KEPT {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.until).map(|(id, _)| id.clone());
            oldest.and_then(|id| kept.remove(&id));
        }
        kept.insert(client_id.to_owned(), Kept { document, until: now + KEPT });
    }
}

/// A host as one client address asks for it: one address uses up no other one's fetches.
fn key_of(host: &str, client: IpAddr) -> Key {
    let digest = secret::digest(&[b"client document", host.as_bytes(), client.to_string().as_bytes()]);
    Key::from(digest.first_chunk().map_or(0, |half| u128::from_be_bytes(*half)))
}

async fn get(url: &SecureUrl, settings: &DocumentSettings, reach: Reach) -> Result<Response<Bytes>, Reject> {
    let failed = |detail: String| Reject::new(Reason::ClientDocument, detail);
    let request = Request::get(&url.target)
        .header(header::HOST, &url.authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/json")
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Full::default())
        .map_err(|error| failed(error.to_string()))?;
    let reads_body = |head: &Parts| head.status == StatusCode::OK;
    let limits = Limits { time: TIME_LIMIT, body_size: MAX_SIZE, reach, reads_body };
    let response = client::send_to(url, settings.ca_file.as_deref(), request, &limits).await;
    response.map_err(|error| failed(format!("{}: {error}", url.text())))
}

/// Only 200 is an answer: no redirect is followed.
fn read(client_id: &str, response: &Response<Bytes>) -> Result<ClientDocument, Reject> {
    let bad = |detail: String| Reject::new(Reason::UnknownClient, detail);
    if response.status() != StatusCode::OK {
        return Err(bad(format!("the document of the client has the status {}", response.status().as_u16())));
    }
    if !is_json(response.headers()) {
        return Err(bad("the document of the client is not application/json".to_owned()));
    }
    let document = ClientDocument::read(client_id, response.body());
    document.map_err(|wrong| bad(format!("the document of the client is not valid: {wrong}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    if media_type::is(headers, "application/json") {
        return true;
    }
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("application/") && essence.ends_with("+json")
}
