//! One fetch from an issuer: which documents are requested, and what they must contain.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde_json::Value;

use super::error::{DiscoveryError, KeySourceError};
use super::fetch::{self, FetchOutcome, FetchedPage, TIME_LIMIT};
use super::settings::{Location, Remote};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::{Issuer, json};

/// Maximum number of left-out keys that are logged for one key set.
const MAX_WARNINGS: usize = 5;
/// Maximum characters of a foreign issuer's name in an error message.
const SHOWN_ISSUER: usize = 200;

pub(super) struct FetchedKeys {
    /// `None`: the keys of the last good fetch are still current.
    pub(super) keys: Option<KeySet>,
    /// How long the keys may be cached, by the response.
    pub(super) max_age: Option<Duration>,
}

/// Fetches the keys of one issuer repeatedly, and remembers what makes the next fetch cheaper.
pub(super) struct KeySourceClient {
    remote: Remote,
    policy: Arc<Issuer>,
    /// The URL that discovery found last.
    discovered: Option<KeyPlace>,
    /// The ETag of the last good key set, and its URL.
    etag: Option<(SecureUrl, HeaderValue)>,
}

impl KeySourceClient {
    pub(super) fn new(remote: Remote, policy: Arc<Issuer>) -> Self {
        KeySourceClient { remote, policy, discovered: None, etag: None }
    }

    /// `is_urgent`: requests wait for a new key. Discovery is then skipped if it has found the URL before.
    pub(super) async fn fetch(&mut self, is_urgent: bool) -> Result<FetchedKeys, KeySourceError> {
        let known = self.discovered.take().filter(|_| is_urgent);
        let place = match (&self.remote.location, known) {
            (Location::Jwks(url), _) => KeyPlace { url: url.clone(), reach: Reach::Loopback },
            (Location::Discovery(_), Some(known)) => known,
            (Location::Discovery(urls), None) => self.discover(urls).await?,
        };
        let KeyPlace { url, reach } = &place;
        let etag = self.etag.as_ref().filter(|(of, _)| of == url).map(|(_, etag)| etag);
        let response = fetch::get(url, self.remote.ca_file.as_deref(), etag, TIME_LIMIT, *reach).await;
        let fetched = match response.map_err(KeySourceError::fetch)? {
            FetchOutcome::NotModified { max_age } => FetchedKeys { keys: None, max_age },
            FetchOutcome::FetchedPage(page) => self.admit(url, page)?,
        };
        self.discovered = Some(place);
        Ok(fetched)
    }

    fn admit(&mut self, url: &SecureUrl, page: FetchedPage) -> Result<FetchedKeys, KeySourceError> {
        let set = KeySet::from_remote_jwks(&page.text, &self.policy.algorithms);
        let (keys, warnings) = set.map_err(|error| KeySourceError::keys(url, error))?;
        for warning in warnings.iter().take(MAX_WARNINGS) {
            tracing::warn!(issuer = %self.policy.issuer, warning, "a key of an issuer is left out");
        }
        // Stored only for an accepted set: "not modified" must never confirm a rejected one.
        self.etag = page.etag.map(|etag| (url.clone(), etag));
        Ok(FetchedKeys { keys: Some(keys), max_age: page.max_age })
    }

    /// Finds the URL of the keys in the issuer's discovery document.
    async fn discover(&self, urls: &[SecureUrl]) -> Result<KeyPlace, KeySourceError> {
        let mut errors = Vec::new();
        for url in urls {
            match fetch::get(url, self.remote.ca_file.as_deref(), None, TIME_LIMIT, Reach::Loopback).await {
                Ok(FetchOutcome::FetchedPage(page)) => {
                    let remote = &self.remote;
                    let issuer = &self.policy.issuer;
                    let found = key_place(&page.text, issuer, page.reach, remote.allow_http, &remote.jwks_hosts);
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

/// Where discovery found the keys.
#[derive(Debug)]
struct KeyPlace {
    url: SecureUrl,
    /// The least reach of the server's address.
    reach: Reach,
}

/// The `jwks_uri` of a discovery document. Its `issuer` must be exactly the configured one: with the document of
/// another issuer, the tokens of this one would be verified with the keys of the other (RFC 8414 section 3.3, RFC
/// 9207).
///
/// The URL must not lead into a nearer network than the server of the document was in, which is its `reach`: an issuer
/// on the internet could otherwise send requests to services of this machine, also by a change of its own name in DNS.
/// The hosts in `jwks_hosts` are exempt, because the operator chose them.
fn key_place(
    document: &str,
    issuer: &str,
    reach: Reach,
    allow_http: bool,
    jwks_hosts: &[String],
) -> Result<KeyPlace, DiscoveryError> {
    let document = json::object(document.as_bytes()).map_err(DiscoveryError::NotJson)?;
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    match text("issuer") {
        None => return Err(DiscoveryError::NoIssuer),
        Some(found) if found != issuer => {
            let found = found.chars().take(SHOWN_ISSUER).collect();
            return Err(DiscoveryError::OtherIssuer { found, expected: issuer.to_owned() });
        }
        Some(_) => {}
    }
    let url = text("jwks_uri").ok_or(DiscoveryError::NoJwksUri)?;
    let url = SecureUrl::parse(url, allow_http).map_err(DiscoveryError::JwksUri)?;
    let is_chosen = |host: &str| url.host.eq_ignore_ascii_case(host);
    if jwks_hosts.iter().any(|host| is_chosen(host)) {
        return Ok(KeyPlace { url, reach: Reach::Loopback });
    }
    match Reach::of_host(&url.host).is_some_and(|host| host < reach) {
        true => Err(DiscoveryError::JwksHost(url.host)),
        false => Ok(KeyPlace { url, reach }),
    }
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
            (r#"{"issuer":"https://a.example"}"#, "NoJwksUri"),
            (r#"{"issuer":"https://a.example","jwks_uri":"http://a.example/k"}"#, "JwksUri(Cleartext)"),
            (r#"{"issuer":"https://a.example","jwks_uri":"/k"}"#, "JwksUri(Invalid)"),
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
            ("https://127.0.0.1/k", Public, &[][..], "JwksHost"),
            ("http://127.0.0.1:8080/k", Public, &[], "JwksHost"),
            ("http://localhost/k", Public, &[], "JwksHost"),
            ("https://[::1]/k", Private, &[], "JwksHost"),
            ("https://10.1.2.3/k", Public, &[], "JwksHost"),
            ("https://169.254.169.254/latest", Public, &[], "JwksHost"),
            ("http://keys.example/k", Public, &["keys.example"], "JwksUri(Cleartext)"),
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
        let place = key_place(document, "https://a.example", reach, false, &hosts);
        place.map(|place| format!("{} {:?}", place.url, place.reach)).map_err(|error| format!("{error:?}"))
    }
}
