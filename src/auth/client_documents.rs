//! Fetches the documents of clients that are described at their URL (Client ID Metadata Documents), and the key sets
//! that these name. A stranger chooses the URL, so that each fetch is bounded: the host must be allowed, and its
//! address public; one fetch for each URL at a time, few in all, and few for each host and each client address.
//! Failures are never kept.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::document_counts::{DocumentCounts, DocumentOutcome};
use super::fetched::Fetched;
use super::flights::{Flights, flight_key};
use crate::limits::limiter::{Key, Limiter, Rate};
use crate::limits::per_address::PerAddressLimit;
use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::http::media_type;
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::authorization::client_document::{self, ClientDocument, DocumentKeys};
use crate::tokens::jwt::Algorithm;
use crate::tokens::jwt::key_set::KeySet;
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// How long a document is kept, whatever its response says.
const KEPT: Duration = Duration::from_mins(15);
/// How long after that it serves while it cannot be fetched: a short outage of its host must not stop its users.
const STALE: Duration = Duration::from_hours(1);

/// Maximum size of a document (section 6.6 of the draft recommends 5 KB).
const MAX_SIZE: usize = 5 * 1024;
/// Maximum size of a key set.
const MAX_KEY_SET: usize = 16 * 1024;
/// How old a key set must be to be fetched again because a key is unknown.
const KEYS_COOLDOWN: Duration = Duration::from_secs(30);
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Maximum number of fetches at the same time of URLs that are new. Each takes 16 KiB at most, and a connection.
const MAX_FIRST: usize = 32;
/// Of these, for each address of a client: strangers who bring URLs of slow servers need eight addresses to make
/// others wait.
const MAX_FIRST_PER_ADDRESS: usize = 4;
/// Maximum number of fetches at the same time of what was fetched before: a flood of new URLs must not stop clients
/// that users have.
const MAX_LATER: usize = 16;
/// Of these, for each address of a client.
const MAX_LATER_PER_ADDRESS: usize = 2;
/// For each host and address of a client: 10 a minute.
const PER_HOST: Rate = Rate { burst: 10, interval: Duration::from_secs(6) };
/// For each address of a client: 60 a minute.
const PER_ADDRESS: Rate = Rate { burst: 60, interval: Duration::from_secs(1) };

/// With what clients of documents sign their assertions.
pub const ALGORITHMS: [Algorithm; 4] = [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA];

/// `oauth.client_documents`
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentSettings {
    /// The hosts of the documents. `None`: any with a public address.
    pub hosts: Option<Vec<String>>,
    /// `oauth.client_documents_ca_file`
    pub ca_file: Option<PathBuf>,
}

impl DocumentSettings {
    /// Returns true if the operator has named this host.
    pub fn names(&self, host: &str) -> bool {
        self.hosts.as_ref().is_some_and(|hosts| hosts.iter().any(|known| known == host))
    }
}

type Outcome = Result<(Arc<ClientDocument>, DocumentOutcome), Missing>;

/// Why there is no document.
#[derive(Clone)]
struct Missing {
    outcome: DocumentOutcome,
    detail: String,
}

/// Shared by all workers, and outlives a reload.
pub struct ClientDocuments {
    documents: Fetched<ClientDocument>,
    key_sets: Fetched<KeySet>,
    fetches: Flights<Outcome>,
    key_fetches: Flights<Result<Arc<KeySet>, Missing>>,
    first_fetches: Semaphore,
    first_per_address: Arc<PerAddressLimit>,
    later_fetches: Semaphore,
    later_per_address: Arc<PerAddressLimit>,
    per_host: Limiter,
    per_address: Limiter,
    pub counts: DocumentCounts,
}

impl Default for ClientDocuments {
    fn default() -> Self {
        ClientDocuments {
            documents: Fetched::default(),
            key_sets: Fetched::default(),
            fetches: Flights::default(),
            key_fetches: Flights::default(),
            first_fetches: Semaphore::new(MAX_FIRST),
            first_per_address: Arc::new(PerAddressLimit::new(MAX_FIRST_PER_ADDRESS)),
            later_fetches: Semaphore::new(MAX_LATER),
            later_per_address: Arc::new(PerAddressLimit::new(MAX_LATER_PER_ADDRESS)),
            per_host: Limiter::new(PER_HOST),
            per_address: Limiter::new(PER_ADDRESS),
            counts: DocumentCounts::default(),
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
        let (document, _) = self.look_up(client_id, settings, client, now).await?;
        Ok(document)
    }

    /// As [`ClientDocuments::find`], for a client that proves a key. A document that could not be fetched again may
    /// have a key that the client has removed since.
    pub async fn find_current(
        &self,
        client_id: &str,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
    ) -> Result<Arc<ClientDocument>, Reject> {
        match self.look_up(client_id, settings, client, now).await? {
            (_, DocumentOutcome::Stale) => {
                Err(Reject::new(Reason::ClientDocument, "the document of the client cannot be fetched again"))
            }
            (document, _) => Ok(document),
        }
    }

    /// The document, if it can serve without a fetch. It counts nothing.
    pub fn known(
        &self,
        client_id: &str,
        settings: &DocumentSettings,
        now: Uptime,
    ) -> Result<Option<Arc<ClientDocument>>, Reject> {
        allowed_host(client_id, settings)?;
        Ok(self.documents.get(client_id, KEPT, now))
    }

    /// Each look-up is counted here.
    async fn look_up(&self, client_id: &str, settings: &DocumentSettings, client: IpAddr, now: Uptime) -> Outcome {
        let found = self.kept_or_fetched(client_id, settings, client, now).await;
        self.counts.count(match &found {
            Ok((_, outcome)) => *outcome,
            Err(missing) => missing.outcome,
        });
        found
    }

    async fn kept_or_fetched(
        &self,
        client_id: &str,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
    ) -> Outcome {
        let host = allowed_host(client_id, settings)?;
        if let Some(document) = self.documents.get(client_id, KEPT, now) {
            return Ok((document, DocumentOutcome::Kept));
        }
        let fetch = async {
            let fetched = self.fetch(client_id, host, settings, client, now).await;
            match (fetched, self.documents.get(client_id, KEPT + STALE, now)) {
                (Err(missing), Some(stale)) if missing.is_temporary() => Ok((stale, DocumentOutcome::Stale)),
                (fetched, _) => fetched.map(|document| (document, DocumentOutcome::Fetched)),
            }
        };
        self.fetches.once(flight_key("", client_id), Box::pin(fetch)).await
    }

    /// The public keys of a client that its document names. `is_unknown`: those that are kept lack the key of an
    /// assertion.
    pub async fn keys(
        &self,
        keys: &DocumentKeys,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
        is_unknown: bool,
    ) -> Result<Arc<KeySet>, Reject> {
        let url = match keys {
            DocumentKeys::Inline(text) => return key_set(text.as_bytes()).map(Arc::new).map_err(Missing::of_keys),
            DocumentKeys::At(url) => url,
        };
        let longest = if is_unknown { KEYS_COOLDOWN } else { KEPT };
        if let Some(keys) = self.key_sets.get(url, longest, now) {
            return Ok(keys);
        }
        let fetch = async {
            let host = allowed_host(url, settings)?;
            let response = self.get(url, host, settings, client, now, MAX_KEY_SET).await?;
            let keys = Arc::new(key_set(response.body())?);
            self.key_sets.keep(url, keys.clone(), now);
            Ok(keys)
        };
        self.key_fetches.once(flight_key("", url), Box::pin(fetch)).await.map_err(Missing::of_keys)
    }

    /// The clients with a document in the memory, each with the name that the document gives it.
    pub fn names(&self) -> Vec<(String, Option<String>)> {
        self.documents.all(|document| document.name.clone())
    }

    async fn fetch(
        &self,
        client_id: &str,
        host: &str,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
    ) -> Result<Arc<ClientDocument>, Missing> {
        let response = self.get(client_id, host, settings, client, now, MAX_SIZE).await?;
        let document = Arc::new(read(client_id, &response)?);
        self.documents.keep(client_id, document.clone(), now);
        Ok(document)
    }

    /// Returns true if this URL was fetched before, and what it gave may serve.
    fn is_known(&self, url: &str, now: Uptime) -> bool {
        let longest = KEPT + STALE;
        self.documents.get(url, longest, now).is_some() || self.key_sets.get(url, longest, now).is_some()
    }

    /// One bounded request. `body_size`: of the response at most, in bytes.
    async fn get(
        &self,
        url: &str,
        host: &str,
        settings: &DocumentSettings,
        client: IpAddr,
        now: Uptime,
        body_size: usize,
    ) -> Result<Response<Bytes>, Missing> {
        let busy = || Missing::new(DocumentOutcome::Busy, "too many documents of clients are fetched");
        self.per_address.try_take(client, now).map_err(|_| busy())?;
        self.per_host.try_take(key_of(host, client), now).map_err(|_| busy())?;
        let (fetches, of_address) = if self.is_known(url, now) {
            (&self.later_fetches, &self.later_per_address)
        } else {
            (&self.first_fetches, &self.first_per_address)
        };
        let _own = of_address.acquire(client).ok_or_else(busy)?;
        // Each one waits for its turn, for as long as a fetch can take.
        let _running = timeout(TIME_LIMIT, fetches.acquire()).await.map_err(|_| busy())?;
        // A host that the operator names may be in a private network.
        let reach = if settings.names(host) { Reach::Loopback } else { Reach::Public };
        let url = SecureUrl::parse(url, false);
        let url = url.map_err(|error| Missing::new(DocumentOutcome::Denied, error.to_string()))?;
        let begun = Instant::now();
        let response = get(&url, settings, reach, body_size).await;
        self.counts.took(response.is_ok(), begun.elapsed());
        response
    }
}

impl Missing {
    fn new(outcome: DocumentOutcome, detail: impl Into<String>) -> Self {
        Missing { outcome, detail: detail.into() }
    }

    /// Without usable keys, the client has not proved that it is the one of the document.
    fn of_keys(missing: Missing) -> Reject {
        if missing.is_temporary() { missing.into() } else { Reject::new(Reason::ClientAssertion, missing.detail) }
    }

    fn is_temporary(&self) -> bool {
        matches!(self.outcome, DocumentOutcome::Busy | DocumentOutcome::Unreachable)
    }
}

impl From<Missing> for Reject {
    fn from(missing: Missing) -> Self {
        let reason = if missing.is_temporary() { Reason::ClientDocument } else { Reason::UnknownClient };
        Reject::new(reason, missing.detail)
    }
}

/// The host of a document that may be fetched.
fn allowed_host<'i>(client_id: &'i str, settings: &DocumentSettings) -> Result<&'i str, Missing> {
    let host = client_document::host_of(client_id);
    let host = host.map_err(|wrong| Missing::new(DocumentOutcome::Denied, wrong))?;
    if settings.hosts.as_ref().is_some_and(|hosts| hosts.iter().all(|known| known != host)) {
        let detail = format!("{host} is not in oauth.client_documents");
        return Err(Missing::new(DocumentOutcome::Denied, detail));
    }
    Ok(host)
}

/// A host as one client address asks for it: one address uses up no other one's fetches. As in all limits, a /64 is one
/// address.
fn key_of(host: &str, client: IpAddr) -> Key {
    let client = Key::from(client).to_bits().to_be_bytes();
    let digest = secret::digest(&[b"client document", host.as_bytes(), &client]);
    Key::from(digest.first_chunk().map_or(0, |half| u128::from_be_bytes(*half)))
}

async fn get(
    url: &SecureUrl,
    settings: &DocumentSettings,
    reach: Reach,
    body_size: usize,
) -> Result<Response<Bytes>, Missing> {
    let request = Request::get(&url.target)
        .header(header::HOST, &url.authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/json")
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Full::default())
        .map_err(|error| Missing::new(DocumentOutcome::Unreachable, error.to_string()))?;
    let reads_body = |head: &Parts| head.status == StatusCode::OK;
    let limits = Limits { time: TIME_LIMIT, body_size, reach, reads_body };
    let response = client::send_to(url, settings.ca_file.as_deref(), request, &limits).await;
    let response = response.map_err(|error| Missing::new(outcome_of(&error), format!("{}: {error}", url.text())))?;
    check_status(response.status())?;
    Ok(response)
}

/// No time helps with some: a client that gets "later" would come back for ever.
fn outcome_of(error: &ClientError) -> DocumentOutcome {
    match error {
        ClientError::Unreachable(_) => DocumentOutcome::Denied,
        ClientError::BodyTooLarge(_) => DocumentOutcome::Invalid,
        _ => DocumentOutcome::Unreachable,
    }
}

/// Only 200 is an answer: no redirect is followed.
fn check_status(status: StatusCode) -> Result<(), Missing> {
    if status == StatusCode::OK {
        return Ok(());
    }
    // If the server of a client is down, the client is not unknown: it would register again.
    let is_down = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let outcome = if is_down { DocumentOutcome::Unreachable } else { DocumentOutcome::Invalid };
    Err(Missing::new(outcome, format!("the server of the client answers with the status {}", status.as_u16())))
}

fn read(client_id: &str, response: &Response<Bytes>) -> Result<ClientDocument, Missing> {
    let bad = |detail: String| Missing::new(DocumentOutcome::Invalid, detail);
    if !is_json(response.headers()) {
        return Err(bad("the document of the client is not application/json".to_owned()));
    }
    let document = ClientDocument::read(client_id, response.body());
    document.map_err(|wrong| bad(format!("the document of the client is not valid: {wrong}")))
}

/// The keys for [`ALGORITHMS`]. A set without any is none.
fn key_set(text: &[u8]) -> Result<KeySet, Missing> {
    let bad = |detail: String| Missing::new(DocumentOutcome::Invalid, detail);
    let text = str::from_utf8(text).map_err(|_| bad("the keys of the client are not UTF-8".to_owned()))?;
    let read = KeySet::from_remote_jwks(text, &ALGORITHMS);
    read.map(|(keys, _)| keys).map_err(|error| bad(format!("the keys of the client cannot be used: {error}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    if media_type::is(headers, "application/json") {
        return true;
    }
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("application/") && essence.ends_with("+json")
}
