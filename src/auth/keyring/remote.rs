//! One fetch from an issuer: which documents are requested, and what they must contain.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::document::{Document, Place};
use super::error::{DiscoveryError, KeySourceError};
use super::fetch::{self, FetchOutcome, FetchedPage, TIME_LIMIT};
use super::settings::{Location, Remote};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::key_set::KeySet;

/// Maximum number of left-out keys that are logged for one key set.
const MAX_WARNINGS: usize = 5;

pub(super) struct FetchedKeys {
    /// `None`: the keys of the last good fetch are still current.
    pub(super) keys: Option<KeySet>,
    /// How long the keys may be cached, by the response.
    pub(super) max_age: Option<Duration>,
    /// The discovery document that named the keys. `None` if it was not fetched again.
    pub(super) document: Option<Document>,
}

/// Fetches the keys of one issuer repeatedly, and remembers what makes the next fetch cheaper.
pub(super) struct KeySourceClient {
    remote: Remote,
    policy: Arc<Issuer>,
    /// The URL that discovery found last.
    discovered: Option<Place>,
    /// The ETag of the last good key set, and its URL.
    etag: Option<(SecureUrl, HeaderValue)>,
}

impl KeySourceClient {
    pub(super) fn new(remote: Remote, policy: Arc<Issuer>) -> Self {
        KeySourceClient { remote, policy, discovered: None, etag: None }
    }

    /// `is_urgent`: requests wait for a new key. Discovery is then skipped if it has found the URL before.
    pub(super) async fn fetch(&mut self, is_urgent: bool) -> Result<FetchedKeys, KeySourceError> {
        let (place, document) = match (&self.remote.location, self.discovered.take()) {
            (Location::Jwks(url), _) => (Place { url: url.clone(), reach: Reach::Loopback }, None),
            (_, Some(known)) if is_urgent => (known, None),
            (location, _) => {
                let (place, document) = self.discover(location.documents().unwrap_or_default()).await?;
                (place, Some(document))
            }
        };
        let Place { url, reach } = &place;
        let etag = self.etag.as_ref().filter(|(of, _)| of == url).map(|(_, etag)| etag);
        let response = fetch::get(url, self.remote.ca_file.as_deref(), etag, TIME_LIMIT, *reach).await;
        let fetched = match response.map_err(KeySourceError::fetch)? {
            FetchOutcome::NotModified { max_age } => FetchedKeys { keys: None, max_age, document: None },
            FetchOutcome::FetchedPage(page) => self.admit(url, page)?,
        };
        self.discovered = Some(place);
        Ok(FetchedKeys { document, ..fetched })
    }

    fn admit(&mut self, url: &SecureUrl, page: FetchedPage) -> Result<FetchedKeys, KeySourceError> {
        let set = KeySet::from_remote_jwks(&page.text, &self.policy.algorithms);
        let (keys, warnings) = set.map_err(|error| KeySourceError::keys(url, error))?;
        for warning in warnings.iter().take(MAX_WARNINGS) {
            tracing::warn!(issuer = %self.policy.issuer, warning, "a key of an issuer is left out");
        }
        // Stored only for an accepted set: "not modified" must never confirm a rejected one.
        self.etag = page.etag.map(|etag| (url.clone(), etag));
        Ok(FetchedKeys { keys: Some(keys), max_age: page.max_age, document: None })
    }

    /// Finds the URL of the keys in the issuer's discovery document.
    async fn discover(&self, urls: &[SecureUrl]) -> Result<(Place, Document), KeySourceError> {
        let mut errors = Vec::new();
        for url in urls {
            match fetch::get(url, self.remote.ca_file.as_deref(), None, TIME_LIMIT, Reach::Loopback).await {
                Ok(FetchOutcome::FetchedPage(page)) => {
                    let remote = &self.remote;
                    let found = key_place(&page, &self.policy.issuer, remote.allow_http, &remote.jwks_hosts);
                    return found.map_err(|source| KeySourceError::Discovery { url: url.to_string(), source });
                }
                // Only a request with an ETag gets this, and this one has none.
                Ok(FetchOutcome::NotModified { .. }) => {}
                Err(error) => errors.push(KeySourceError::fetch(error)),
            }
        }
        Err(KeySourceError::NotDiscovered(errors))
    }
}

/// The document, and the place of the keys that it names.
fn key_place(
    page: &FetchedPage,
    issuer: &str,
    allow_http: bool,
    jwks_hosts: &[String],
) -> Result<(Place, Document), DiscoveryError> {
    let document = Document::read(&page.text, issuer, page.reach)?;
    let place = document.place("jwks_uri", allow_http, jwks_hosts)?;
    Ok((place.ok_or(DiscoveryError::Missing("jwks_uri"))?, document))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_a_discovery_document_of_its_own_issuer() {
        let good = r#"{"issuer":"https://a.example","jwks_uri":"https://keys.example/k"}"#;
        let place = found(good, Reach::Public, &[]).expect("good");
        assert_eq!(place, "https://keys.example/k Public");
        for (document, says) in [
            (r#"{"issuer":"https://a.example/","jwks_uri":"https://a.example/k"}"#, "OtherIssuer"),
            (r#"{"issuer":"https://A.example","jwks_uri":"https://a.example/k"}"#, "OtherIssuer"),
            (r#"{"issuer":["https://a.example"],"jwks_uri":"https://a.example/k"}"#, "NoIssuer"),
            (r#"{"jwks_uri":"https://a.example/k"}"#, "NoIssuer"),
            (r#"{"issuer":"https://a.example"}"#, "Missing"),
            (
                r#"{"issuer":"https://a.example","jwks_uri":"http://a.example/k"}"#,
                "Url { member: \"jwks_uri\", fault: Cleartext }",
            ),
            (r#"{"issuer":"https://a.example","jwks_uri":"/k"}"#, "Url { member: \"jwks_uri\", fault: Invalid }"),
            (
                r#"{"issuer":"https://b.example","issuer":"https://a.example","jwks_uri":"https://a.example/k"}"#,
                "NotJson",
            ),
            ("<html>", "NotJson"),
            ("", "NotJson"),
        ] {
            let error = found(document, Reach::Public, &[]).expect_err(document);
            assert!(error.starts_with(says), "{document}: {error:?}");
        }
    }

    #[test]
    fn a_document_cannot_name_a_nearer_host_than_its_own() {
        use Reach::{Loopback, Private, Public};
        for (jwks_uri, reach, hosts, expected) in [
            ("https://127.0.0.1/k", Public, &[][..], "Host"),
            ("http://127.0.0.1:8080/k", Public, &[], "Host"),
            ("http://localhost/k", Public, &[], "Host"),
            ("https://[::1]/k", Private, &[], "Host"),
            ("https://10.1.2.3/k", Public, &[], "Host"),
            ("https://169.254.169.254/latest", Public, &[], "Host"),
            ("http://keys.example/k", Public, &["keys.example"], "Url { member: \"jwks_uri\", fault: Cleartext }"),
            // The address that this name resolves to is checked later.
            ("https://keys.example/k", Public, &[], "https://keys.example/k Public"),
            ("https://10.1.2.3/k", Private, &[], "https://10.1.2.3/k Private"),
            // Its own name may lead to another address by now.
            ("https://A.example/k", Public, &[], "https://A.example/k Public"),
            // Chosen by the operator.
            ("https://a.example/k", Public, &["a.example"], "https://a.example/k Loopback"),
            ("https://10.1.2.3/k", Public, &["10.1.2.3"], "https://10.1.2.3/k Loopback"),
            ("http://127.0.0.1/k", Public, &["127.0.0.1"], "http://127.0.0.1/k Loopback"),
            ("http://127.0.0.1:2/k", Loopback, &[], "http://127.0.0.1:2/k Loopback"),
            ("http://[::1]/k", Loopback, &[], "http://[::1]/k Loopback"),
        ] {
            let document = format!(r#"{{"issuer":"https://a.example","jwks_uri":"{jwks_uri}"}}"#);
            let place = found(&document, reach, hosts).unwrap_or_else(|error| error);
            assert!(place.starts_with(expected), "{jwks_uri} from {reach:?}: {place}");
        }
    }

    fn found(document: &str, reach: Reach, hosts: &[&str]) -> Result<String, String> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let page = FetchedPage { text: document.to_owned(), etag: None, max_age: None, reach };
        let place = key_place(&page, "https://a.example", false, &hosts);
        place.map(|(place, _)| format!("{} {:?}", place.url, place.reach)).map_err(|error| format!("{error:?}"))
    }
}
