//! `GET /admin/v1/issuers`: the keys of every `[[issuer]]`, `[[provider]]` and `[[oauth.client]]`, and how their source
//! is.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::Serialize;

use crate::admin::state::Admin;
use crate::auth::keyring::{KeyFile, KeySource, KeyUser, Location, Source};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::types::clock::{UnixTime, Uptime};
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/issuers";

#[derive(Serialize)]
struct List {
    issuers: Vec<IssuerEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IssuerEntry {
    issuer: String,
    /// The key in `gateway.toml` that names the source, or `provider` or `client`.
    kind: &'static str,
    source: String,
    /// `current`, `failing`, `stale` or `missing`.
    state: &'static str,
    keys: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    /// Absent for a file, which is never too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_at: Option<String>,
    /// Absent if the last attempt succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

pub(crate) fn handle(admin: &Admin, method: &Method, now: UnixTime) -> Result<Response<Body>, Reject> {
    if *method != Method::GET {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD"));
    }
    let keys = admin.broker.keyring.keys();
    let uptime = admin.clock.uptime();
    // An issuer that is only asked about its tokens has no keys.
    let sources = keys.sources().iter().filter(|source| source.settings != KeySource::None);
    let issuers = sources.map(|source| IssuerEntry::of(source, now, uptime));
    let parties = [("provider", admin.providers.sources()), ("client", admin.client_keys.sources())];
    let of_kind = |(kind, sources): &(&'static str, Vec<Arc<Source>>)| {
        let entry = |source: &Arc<Source>| IssuerEntry { kind, ..IssuerEntry::of(source, now, uptime) };
        sources.iter().map(entry).collect::<Vec<_>>()
    };
    let issuers = issuers.chain(parties.iter().flat_map(of_kind)).collect();
    Ok(respond::json(StatusCode::OK, &List { issuers }))
}

impl IssuerEntry {
    fn of(source: &Source, now: UnixTime, uptime: Uptime) -> Self {
        let status = source.status(uptime);
        let (kind, place) = place(&source.settings);
        IssuerEntry {
            issuer: source.policy.issuer.to_string(),
            kind,
            source: place,
            state: status.name(),
            keys: status.keys,
            confirmed_at: status.age.map(|age| (now - age).to_string()),
            age_seconds: status.age.map(|age| age.as_secs()),
            max_age_seconds: source.remote().map(|remote| remote.max_age.as_secs()),
            last_attempt_at: status.since_attempt.map(|since| (now - since).to_string()),
            last_error: status.last_error,
        }
    }
}

/// The kind of a source, and where it is.
fn place(settings: &KeySource) -> (&'static str, String) {
    match settings {
        KeySource::File(KeyFile::Jwks(path)) => ("jwks_file", path.display().to_string()),
        KeySource::File(KeyFile::Pem(path)) => ("pem_file", path.display().to_string()),
        KeySource::File(KeyFile::Secret(path)) => ("secret_file", path.display().to_string()),
        KeySource::Remote(remote) => match &remote.location {
            Location::Jwks(url) => ("jwks_url", url.to_string()),
            Location::Discovery([url, _]) | Location::EventTransmitter(url) => ("discover", url.to_string()),
        },
        KeySource::None => ("introspect", String::new()),
    }
}
