//! A visit to an issuer: which documents are asked for, and what they must say.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde_json::Value;

use super::fetch::{self, FetchOutcome, FetchedPage, TIME_LIMIT};
use super::settings::{Location, Remote};
use crate::protocols::url::KeyUrl;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::{Issuer, json};
use crate::types::reject::with_causes;

/// What a visit has found.
pub(super) struct Found {
    /// `None`: those of the last good visit.
    pub(super) keys: Option<KeySet>,
    /// How long the source says that this is good for.
    pub(super) max_age: Option<Duration>,
}

/// Goes to one issuer again and again, and remembers what makes the next visit cheaper.
pub(super) struct KeySourceClient {
    remote: Remote,
    policy: Arc<Issuer>,
    /// Where the keys were last found by discovery.
    discovered: Option<KeyUrl>,
    /// Of the last good set, and where it was.
    etag: Option<(KeyUrl, HeaderValue)>,
}

impl KeySourceClient {
    pub(super) fn new(remote: Remote, policy: Arc<Issuer>) -> Self {
        KeySourceClient { remote, policy, discovered: None, etag: None }
    }

    /// `in_haste`: requests wait for a new key. Where the keys are is then not asked again if it is known.
    pub(super) async fn visit(&mut self, in_haste: bool) -> Result<Found, String> {
        let known = self.discovered.take().filter(|_| in_haste);
        let url = match (&self.remote.location, known) {
            (Location::Jwks(url), _) => url.clone(),
            (Location::Discovery(_), Some(known)) => known,
            (Location::Discovery(places), None) => self.discover(places).await?,
        };
        let etag = self.etag.as_ref().filter(|(of, _)| *of == url).map(|(_, etag)| etag);
        let answer = fetch::get(&url, self.remote.ca_file.as_deref(), etag, TIME_LIMIT).await;
        let found = match answer.map_err(|error| with_causes(&error))? {
            FetchOutcome::NotModified { max_age } => Found { keys: None, max_age },
            FetchOutcome::FetchedPage(page) => self.admit(&url, page)?,
        };
        self.discovered = Some(url);
        Ok(found)
    }

    fn admit(&mut self, url: &KeyUrl, page: FetchedPage) -> Result<Found, String> {
        let set = KeySet::from_remote_jwks(&page.text, &self.policy.algorithms);
        let (keys, warnings) = set.map_err(|fault| format!("{url}: {fault}"))?;
        for warning in warnings.iter().take(5) {
            tracing::warn!(issuer = %self.policy.issuer, warning, "a key is left out");
        }
        // Only of a set that is in force: "not modified" must never confirm one that was refused.
        self.etag = page.etag.map(|etag| (url.clone(), etag));
        Ok(Found { keys: Some(keys), max_age: page.max_age })
    }

    /// Asks the issuer where its keys are.
    async fn discover(&self, places: &[KeyUrl]) -> Result<KeyUrl, String> {
        let mut faults = Vec::new();
        for place in places {
            match fetch::get(place, self.remote.ca_file.as_deref(), None, TIME_LIMIT).await {
                Ok(FetchOutcome::FetchedPage(page)) => {
                    let url = jwks_url(&page.text, &self.policy.issuer, self.remote.allow_http);
                    return url.map_err(|fault| format!("{place}: {fault}"));
                }
                Ok(FetchOutcome::NotModified { .. }) => {}
                Err(error) => faults.push(with_causes(&error)),
            }
        }
        Err(faults.join("; "))
    }
}

/// `jwks_uri` of a discovery document that speaks of this very issuer. One that speaks of another is how a token of one
/// issuer comes to be checked with the keys of another (RFC 8414 section 3.3, RFC 9207).
fn jwks_url(document: &str, issuer: &str, allow_http: bool) -> Result<KeyUrl, String> {
    let document = json::object(document.as_bytes()).map_err(|error| format!("this is not JSON: {error}"))?;
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    match text("issuer") {
        None => return Err("the document names no issuer".into()),
        Some(named) if named != issuer => {
            let named: String = named.chars().take(200).collect();
            return Err(format!("the document is of the issuer {named:?}, not of {issuer:?}"));
        }
        Some(_) => {}
    }
    let url = text("jwks_uri").ok_or("the document names no jwks_uri")?;
    KeyUrl::parse(url, allow_http).map_err(|fault| format!("jwks_uri: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovery_document_speaks_of_its_own_issuer_and_of_a_safe_address() {
        let good = r#"{"issuer":"https://a.example","jwks_uri":"https://keys.example/k"}"#;
        let url = jwks_url(good, "https://a.example", false).expect("good");
        assert_eq!(url.to_string(), "https://keys.example/k");
        for (document, says) in [
            (r#"{"issuer":"https://a.example/","jwks_uri":"https://a.example/k"}"#, "of the issuer"),
            (r#"{"issuer":"https://A.example","jwks_uri":"https://a.example/k"}"#, "of the issuer"),
            (r#"{"issuer":["https://a.example"],"jwks_uri":"https://a.example/k"}"#, "names no issuer"),
            (r#"{"jwks_uri":"https://a.example/k"}"#, "names no issuer"),
            (r#"{"issuer":"https://a.example"}"#, "names no jwks_uri"),
            (r#"{"issuer":"https://a.example","jwks_uri":"http://a.example/k"}"#, "cleartext"),
            (r#"{"issuer":"https://a.example","jwks_uri":"/k"}"#, "not a URL"),
            (r#"{"issuer":"https://b.example","issuer":"https://a.example","jwks_uri":"https://a.example/k"}"#, "JSON"),
            ("<html>", "not JSON"),
            ("", "not JSON"),
        ] {
            let fault = jwks_url(document, "https://a.example", false).expect_err(document);
            assert!(fault.contains(says), "{document}: {fault}");
        }
    }
}
