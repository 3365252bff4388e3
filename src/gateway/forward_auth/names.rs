//! Headers that the gateway removes from its own requests, and that no client of another proxy may send either; and
//! those that name the caller. Pure.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::settings::SECRET;
use crate::auth::identity::Identity;
use crate::auth::proofs::DPOP;
use crate::gateway::authorize::Permit;
use crate::protocols::http::client_cert::{CLIENT_CERT, CLIENT_CERT_CHAIN};
use crate::protocols::http::headers::{METHOD_OVERRIDES, OBSERVED, X_REQUEST_ID, names_trace};
use crate::protocols::http::name_pattern::NamePattern;
use crate::telemetry::access_log::Record;

/// Headers by which some backends read another path: IIS with URL Rewrite, Laminas, old releases of Symfony.
const PATH_OVERRIDES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// What only the gateway or a proxy may tell a backend: which proof was used, and which certificate the client has.
static EVIDENCE: [&HeaderName; 3] = [&DPOP, &CLIENT_CERT, &CLIENT_CERT_CHAIN];

pub(super) struct Names {
    /// The headers that the gateway answers for each request, with or without a value: a proxy that copies what it gets
    /// (Envoy) would let a forged one pass to the backend otherwise.
    pub(super) own: Vec<HeaderName>,
    /// The same, in every spelling.
    identity: Vec<NamePattern>,
    /// Headers that name another method.
    overrides: Vec<NamePattern>,
    /// [`PATH_OVERRIDES`]
    other_paths: Vec<NamePattern>,
    secret: NamePattern,
    /// [`EVIDENCE`], without what `forwarding.keep` names.
    evidence: Vec<(&'static HeaderName, NamePattern)>,
    /// A route decides by the method.
    decides_by_method: bool,
}

impl Names {
    /// `kept`: `forwarding.keep`
    pub(super) fn new(identity: &Identity, kept: &[NamePattern], decides_by_method: bool) -> Self {
        let mut own: Vec<HeaderName> = Vec::new();
        for name in identity.names().chain([&HeaderName::from_static(OBSERVED)]) {
            if !own.contains(name) {
                own.push(name.clone());
            }
        }
        let exact = |name: &HeaderName| NamePattern::exact(name.as_str());
        let is_kept = |name: &HeaderName| kept.iter().any(|kept| kept.matches(name.as_str().as_bytes()));
        let evidence = EVIDENCE.into_iter().filter(|name| !is_kept(name));
        Names {
            evidence: evidence.map(|name| (name, exact(name))).collect(),
            identity: own.iter().map(exact).collect(),
            overrides: METHOD_OVERRIDES.iter().map(exact).collect(),
            other_paths: PATH_OVERRIDES.into_iter().map(NamePattern::exact).collect(),
            secret: exact(&SECRET),
            own,
            decides_by_method,
        }
    }

    /// The names of an identity header, in any spelling, and of another method or path than the one that is decided
    /// about. The names of a proof and a certificate, in any spelling but their own. No honest client sends these.
    pub(super) fn forbidden<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h HeaderName> {
        let is = |patterns: &[NamePattern], name: &HeaderName| {
            patterns.iter().any(|pattern| pattern.matches(name.as_str().as_bytes()))
        };
        headers.keys().filter(move |name| {
            is(&self.identity, name)
                || is(&self.other_paths, name)
                || self.is_evidence(name) && !EVIDENCE.contains(name)
                || is(&self.overrides, name)
                    && (self.decides_by_method || headers.get_all(*name).iter().any(names_trace))
        })
    }

    /// Returns true for a field of [`EVIDENCE`] in any spelling.
    fn is_evidence(&self, name: &HeaderName) -> bool {
        self.evidence.iter().any(|(_, pattern)| pattern.matches(name.as_str().as_bytes()))
    }

    /// What the proxy is to remove: the headers of the gateway that it does not set, those that are forbidden, and
    /// those of the client that no backend gets.
    ///
    /// `set`: what the proxy sets. `sent`, `left`: the headers of the client, and what the gateway would forward of
    /// them.
    pub(super) fn removed(&self, set: &HeaderMap, sent: &HeaderMap, left: &HeaderMap) -> Vec<String> {
        let is_secret = |name: &&HeaderName| self.secret.matches(name.as_str().as_bytes());
        let taken = sent.keys().filter(|name| !left.contains_key(*name) || is_secret(name));
        let named = self.forbidden(sent).chain(taken).map(HeaderName::as_str);
        let own: Vec<&HeaderName> = self.own.iter().chain(self.evidence.iter().map(|(name, _)| *name)).collect();
        let mut removed: Vec<String> = own.iter().map(|name| name.as_str()).chain(named).map(str::to_owned).collect();
        // CGI reads these as the same. The proxy may hide them from the gateway.
        removed.extend(own.iter().map(|name| name.as_str().replace('-', "_")));
        removed.sort_unstable();
        removed.dedup();
        removed.retain(|name| !set.contains_key(name));
        removed
    }
}

/// Names the caller, its certificate and the request.
pub(super) fn set_identity(
    headers: &mut HeaderMap,
    permit: &Permit,
    certificate: Option<Vec<(HeaderName, HeaderValue)>>,
    record: &Record,
) {
    for (name, value) in permit.caller().into_iter().flat_map(|caller| &caller.cached().identity) {
        headers.insert(name.clone(), value.clone());
    }
    for (name, value) in certificate.into_iter().flatten() {
        headers.insert(name, value);
    }
    if let Some(observed) = permit.observed() {
        headers.insert(HeaderName::from_static(OBSERVED), HeaderValue::from_static(observed.reason.code()));
    }
    if let Ok(id) = HeaderValue::from_bytes(&record.request_id.as_hex()) {
        headers.insert(X_REQUEST_ID, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::identity::CertificateHeaders;

    fn names(decides_by_method: bool) -> Names {
        let subject = Some(HeaderName::from_static("x-user"));
        let certificate = CertificateHeaders::default();
        let identity = Identity { subject, scope: None, token_id: None, issuer: None, claims: Vec::new(), certificate };
        Names::new(&identity, &[], decides_by_method)
    }

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_only_the_gateway_says_is_forbidden_in_every_spelling() {
        for (name, value, decides_by_method, expected) in [
            ("x-user", "1", false, true),
            ("x_user", "1", false, true),
            ("x.user", "1", false, true),
            ("x_auth-subject", "1", false, true),
            ("x-users", "1", false, false),
            ("x_rewrite_url", "/", false, true),
            ("client_cert", ":AQID:", false, true),
            ("client.cert-chain", ":AQID:", false, true),
            ("client-cert", ":AQID:", false, false),
            ("client-certs", ":AQID:", false, false),
            ("dpop", "x", false, false),
            ("x-http-method", "PUT", true, true),
            ("x-http-method", "PUT", false, false),
            ("x-http-method", "trace", false, true),
        ] {
            let found = names(decides_by_method).forbidden(&map(&[(name, value)])).count();
            assert_eq!(found, usize::from(expected), "{name} {value} {decides_by_method}");
        }
    }

    #[test]
    fn every_own_header_is_set_or_removed() {
        let sent = map(&[
            ("x_User", "root"),
            ("x-user", "root"),
            ("x.auth.scope", "all"),
            ("authorization", "Bearer x"),
            ("x_forward_auth_secret", "guessed"),
            ("accept", "*/*"),
        ]);
        let left = map(&[("accept", "*/*"), ("x-user", "root"), ("x_forward_auth_secret", "guessed")]);
        let removed = names(false).removed(&map(&[("x-user", "alice")]), &sent, &left);
        let own = [
            "client-cert",
            "client-cert-chain",
            "dpop",
            "x-auth-issuer",
            "x-auth-observed",
            "x-auth-scope",
            "x-auth-subject",
            "x-auth-token-id",
        ];
        let mut expected = own.map(str::to_owned).to_vec();
        expected.extend(own.map(|name| name.replace('-', "_")));
        expected.extend(["authorization", "x.auth.scope", "x_forward_auth_secret", "x_user"].map(str::to_owned));
        expected.sort();
        expected.dedup();
        assert_eq!(removed, expected);
    }
}
