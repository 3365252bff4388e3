//! The route of an open stream after a reload: it is found again, as for a new request.
//!
//! A reload can take the route of a stream away, or give it rules by which a new request would be rejected. What a
//! stream no longer knows counts as lost: where its token was, which page it came from, and whether it had a proof. So
//! if a route accepts less of these than before, all its streams that could depend on it end, and their clients connect
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Method, Uri};

use crate::auth::bearer::TokenLocations;
use crate::auth::proofs::ProofRule;
use crate::auth::token_cache::CachedToken;
use crate::gateway::csrf;
use crate::gateway::route::{Access, Route};
use crate::gateway::route_table::RouteTable;
use crate::protocols::tls::PeerCertificate;
use crate::telemetry::access_log::Record;
use crate::tokens::credential_kind::CredentialKind;
use crate::types::reject::Reason;

/// The routes of the active configuration. Outlives a reload, as streams do.
#[derive(Default)]
pub struct ActiveRoutes {
    table: ArcSwapOption<RouteTable>,
    replaced: AtomicU64,
}

impl ActiveRoutes {
    pub fn replace(&self, table: Arc<RouteTable>) {
        self.table.store(Some(table));
        self.replaced.fetch_add(1, Ordering::Release);
    }

    /// Grows with each reload.
    pub(super) fn changes(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// `None` in tests of other modules.
    pub(super) fn table(&self) -> Option<Arc<RouteTable>> {
        self.table.load_full()
    }
}

/// The request that opened a stream. It shares the text of the record, which a stream keeps until it ends.
pub(super) struct Opening {
    method: Method,
    host: Option<HeaderValue>,
    uri: Uri,
    /// A page of another site could have opened it, if its token was in a cookie.
    can_be_forged: bool,
}

impl Opening {
    pub(super) fn of(record: &Record, is_websocket: bool) -> Self {
        // Over HTTP/2, the gateway has turned it into the GET that it stands for.
        let method = if record.method == Method::CONNECT { Method::GET } else { record.method.clone() };
        let can_be_forged = is_websocket || !csrf::is_safe(&method);
        Opening { method, host: record.host.clone(), uri: record.uri.clone(), can_be_forged }
    }

    /// The route of a new request like this one.
    ///
    /// # Errors
    /// If it would be rejected, whatever the rules of the route say about its token. `held`: the token, and the route
    /// that accepted it.
    pub(super) fn find_route(
        &self,
        routes: &RouteTable,
        held: Option<(&CachedToken, &Route)>,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Arc<Route>, Reason> {
        let host = self.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
        let found = routes.find_forwarding(host, &self.method, self.uri.path()).ok_or(Reason::NoRoute)?;
        // Workers have references of their own. This is the one of all others.
        let route = found.of(usize::MAX, Route::of_a_worker).clone();
        if !route.enforce {
            return Ok(route);
        }
        let certificate = certificate.map(|shown| &shown.certificate);
        route.certificate.check(certificate).map_err(|reject| reject.reason)?;
        match (&route.access, held) {
            (Access::Public, _) => {}
            (Access::Token(_), None) => return Err(Reason::NoToken),
            (Access::Token(_), Some((token, before))) => self.check_token(token, before, &route)?,
        }
        Ok(route)
    }

    /// Rejects a token that could not be sent to `now` as it was to `before`.
    fn check_token(&self, token: &CachedToken, before: &Route, now: &Route) -> Result<(), Reason> {
        let provider = token.provider.as_ref().map(|at| &*at.provider);
        if provider.is_some() && now.sign_in.as_deref() != provider {
            return Err(Reason::BadSession);
        }
        if token.kind == CredentialKind::ApiKey && !now.places.api_keys {
            return Err(Reason::ApiKeyNotAllowed);
        }
        if provider.is_none() && !accepts_all_of(&now.places, &before.places) {
            return Err(Reason::NoToken);
        }
        let was_cookie = provider.is_some() || !before.places.cookies.is_empty();
        if was_cookie && self.can_be_forged && before.origins.iter().any(|origin| !now.origins.contains(origin)) {
            return Err(Reason::Csrf);
        }
        match (before.proof, now.proof) {
            (_, ProofRule::Required) if token.token.bound_to.is_none() => Err(Reason::TokenNotBound),
            (ProofRule::Off, ProofRule::IfBound | ProofRule::Required) if token.is_bound => Err(Reason::ProofMissing),
            _ => Ok(()),
        }
    }
}

/// Returns true if a token is found wherever it was found before. API keys and the cookies of sign-ins have rules of
/// their own.
fn accepts_all_of(now: &TokenLocations, before: &TokenLocations) -> bool {
    let has_names = |all: &[String], names: &[String]| names.iter().all(|name| all.contains(name));
    (now.header || !before.header)
        && (now.websocket || !before.websocket)
        && has_names(&now.cookies, &before.cookies)
        && has_names(&now.queries, &before.queries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::client_certificates::CertificateRule;
    use crate::gateway::rules::Rules;
    use crate::tokens::jwt::{SignedInAt, VerifiedToken};

    fn opening(method: Method, is_websocket: bool) -> Opening {
        let host = Some(HeaderValue::from_static("a.example:8443"));
        let record = Record { method, host, uri: Uri::from_static("/staff/x?y"), ..Record::default() };
        Opening::of(&record, is_websocket)
    }

    fn found(opening: &Opening, now: &[Route], held: Option<(&CachedToken, &Route)>) -> Result<String, Reason> {
        let route = opening.find_route(&RouteTable::new(now, 1), held, None)?;
        Ok(route.path.clone())
    }

    #[test]
    fn a_stream_has_the_route_of_a_new_request() {
        let everything = Route { access: Access::Public, ..Route::everything() };
        let staff = Route { path: "/staff/".into(), ..everything.clone() };
        let of_host = Route { host: Some("a.example".into()), ..everything.clone() };
        let post = Route { methods: vec![Method::POST], ..staff.clone() };
        let [get, connect] = [Method::GET, Method::CONNECT].map(|method| opening(method, true));
        for (routes, expected) in [
            (&[everything.clone()][..], Ok("/".to_owned())),
            (&[everything.clone(), staff.clone()], Ok("/staff/".to_owned())),
            (&[of_host, staff.clone()], Ok("/".to_owned())),
            (&[everything.clone(), post], Err(Reason::NoRoute)),
            (&[Route { path: "/staff/x/y".into(), ..everything }], Err(Reason::NoRoute)),
            (&[], Err(Reason::NoRoute)),
        ] {
            for opening in [&get, &connect] {
                assert_eq!(found(opening, routes, None), expected);
            }
        }
    }

    #[test]
    fn a_stream_ends_if_its_token_could_not_be_sent_in_the_same_way() {
        let base = Route::everything();
        let with = |change: fn(&mut Route)| {
            let mut route = Route { access: Access::Token(Rules::default()), ..Route::everything() };
            change(&mut route);
            route
        };
        let places = |places: TokenLocations| Route { places, ..Route::everything() };
        let header = TokenLocations::default();
        let query = TokenLocations { queries: vec!["token".into()], ..header.clone() };
        let only_query = TokenLocations { header: false, ..query.clone() };
        let cookie = TokenLocations { cookies: vec!["a".into()], ..header.clone() };
        let trusting = |origin: &str| Route { origins: vec![origin.into()], ..places(cookie.clone()) };
        let signed_in = with(|route| route.sign_in = Some("main".into()));
        let [plain, of_login] = [false, true].map(|is_login| {
            let mut token = CachedToken::new("a token", VerifiedToken::with_subject("alice".into()), Vec::new(), 1);
            token.provider = is_login.then(|| Arc::new(SignedInAt { provider: "main".into(), issuer: "a".into() }));
            token
        });
        let required = with(|route| route.certificate = CertificateRule { is_required: true, names: Vec::new() });
        for (token, before, now, expected) in [
            (&plain, &base, &base, Ok(())),
            (&plain, &base, &with(|route| route.access = Access::Public), Ok(())),
            (&plain, &base, &required, Err(Reason::CertificateMissing)),
            (&plain, &base, &Route { enforce: false, ..required.clone() }, Ok(())),
            (&plain, &places(query.clone()), &base, Err(Reason::NoToken)),
            (&plain, &base, &places(query), Ok(())),
            (&plain, &base, &places(only_query), Err(Reason::NoToken)),
            (&plain, &base, &with(|route| route.proof = ProofRule::Required), Err(Reason::TokenNotBound)),
            (&plain, &trusting("https://b"), &trusting("https://c"), Err(Reason::Csrf)),
            (&plain, &places(cookie.clone()), &trusting("https://c"), Ok(())),
            (&of_login, &signed_in, &signed_in, Ok(())),
            (&of_login, &signed_in, &base, Err(Reason::BadSession)),
            (&of_login, &signed_in, &with(|route| route.sign_in = Some("other".into())), Err(Reason::BadSession)),
        ] {
            let route = found(&opening(Method::GET, true), std::slice::from_ref(now), Some((token, before)));
            assert_eq!(route.map(|_| ()), expected, "{before:?} {now:?}");
        }
        let get = opening(Method::GET, false);
        assert!(found(&get, &[trusting("https://c")], Some((&plain, &trusting("https://b")))).is_ok(), "it is safe");
        assert_eq!(found(&get, &[base], None), Err(Reason::NoToken));
    }
}
