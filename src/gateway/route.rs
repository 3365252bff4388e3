//! `[[route]]`: what the configuration says about a path.

use std::sync::Arc;

use http::Method;

use crate::auth::bearer::TokenLocations;
use crate::auth::proofs::ProofRule;
use crate::gateway::client_certificates::CertificateRule;
use crate::gateway::cors;
use crate::gateway::fixed_response::{FixedResponse, Maintenance};
use crate::gateway::protected_resource::ProtectedResource;
use crate::gateway::rules::Rules;
use crate::limits::rate_limit::RateLimitSettings;
use crate::protocols::http::header_rules::HeaderRules;
use crate::protocols::http::path_prefix::PathPrefix;
use crate::protocols::http::readings::PathForms;
use crate::store::postgres::OnStale;
use crate::telemetry::metrics::RouteRequests;
use crate::tokens::jwt::NeededAudience;

/// `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
#[repr(align(128))]
pub struct Route {
    /// Name in the access log and in metrics. Default: the path.
    pub name: Arc<str>,
    /// Lower case, without port. `None` matches every host.
    pub host: Option<String>,
    /// Empty matches every method.
    pub methods: Vec<Method>,
    /// Begins with `/`. `/a/` matches everything below it. `/a` also matches itself: `/a` and `/a/b`, but not `/ab`.
    pub path: String,
    /// If true, `path` matches requests in upper and lower case (ASCII).
    pub ignore_case: bool,
    /// `route.paths`: forms of a path that are rejected elsewhere.
    pub forms: PathForms,
    /// Index of the upstream in the configuration.
    pub upstream: usize,
    /// `route.strip_prefix`: removed from the path that the backend gets.
    pub strip_prefix: Option<Box<PathPrefix>>,
    pub access: Access,
    /// `route.resource`. `None`: tokens of `tokens.audience` and `issuer.audience` are good here.
    pub resource: Option<Arc<ProtectedResource>>,
    /// `route.default_resource`
    pub is_default_resource: bool,
    /// Which client certificate a request needs, beside the token or alone.
    pub certificate: CertificateRule,
    /// If true, the backend does CORS: preflights (OPTIONS with Origin and Access-Control-Request-Method) need no
    /// token, and the gateway leaves the fields of the backend unchanged.
    pub preflight: bool,
    /// `[route.cors]`, or `[cors]`
    pub cors: Option<Arc<cors::Policy>>,
    pub places: TokenLocations,
    /// `route.origins`: other origins that may use the token in a cookie.
    pub origins: Vec<String>,
    /// `route.sign_in`: the provider where browsers sign in. `None`: they do not.
    pub sign_in: Option<Arc<str>>,
    /// `route.proof`
    pub proof: ProofRule,
    pub token_forwarding: TokenForwarding,
    /// If false, a request that would be rejected for its token is forwarded and only reported.
    pub enforce: bool,
    /// `[[route.rate]]`
    pub rates: Vec<RateLimitSettings>,
    /// What the responses of the backend mean for tokens.
    pub capture: Option<Capture>,
    /// `route.on_stale`. `None`: as `store.on_stale`.
    pub on_stale: Option<OnStale>,
    /// `[route.respond]`. `None`: the upstream responds.
    pub respond: Option<Arc<FixedResponse>>,
    /// `[maintenance]`, if it applies here.
    pub maintenance: Option<Arc<Maintenance>>,
    /// `[route.request_headers]`. `None`: no changes.
    pub request_headers: Option<Arc<HeaderRules>>,
    /// `[route.response_headers]`. `None`: no changes.
    pub response_headers: Option<Arc<HeaderRules>>,
    /// Counts its requests. A configuration that was only read counts nothing.
    pub requests: RouteRequests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// `login = true`: a response that names a subject becomes a token pair.
    Login,
    /// `login = "cookie"`: the pair is set as cookies, and the response stays as it is.
    CookieLogin,
    /// `logout = true`: a 2xx response ends the caller's family.
    Logout,
}

/// `route.token`: what the upstream sees of the token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenForwarding {
    Pass,
    Drop,
    /// A token of this gateway instead, for this audience (`route.token_audience`).
    Replace(Vec<String>),
    /// A token of another server instead: the place of its `[[token_exchange]]` in the configuration.
    Exchange(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// `public = true`: no token is needed.
    Public,
    /// A valid token that meets these rules.
    Token(Rules),
}

impl Route {
    /// The route of a configuration without `[[route]]`: every path needs a token and goes to the only upstream.
    pub fn everything() -> Self {
        Route {
            name: "/".into(),
            host: None,
            methods: Vec::new(),
            path: "/".to_owned(),
            ignore_case: false,
            forms: PathForms::STRICT,
            upstream: 0,
            strip_prefix: None,
            access: Access::Token(Rules::default()),
            resource: None,
            is_default_resource: false,
            certificate: CertificateRule::default(),
            preflight: false,
            cors: None,
            places: TokenLocations::default(),
            origins: Vec::new(),
            sign_in: None,
            proof: ProofRule::IfBound,
            token_forwarding: TokenForwarding::Pass,
            enforce: true,
            rates: Vec::new(),
            capture: None,
            on_stale: None,
            respond: None,
            maintenance: None,
            request_headers: None,
            response_headers: None,
            requests: RouteRequests::default(),
        }
    }

    /// The same, with a name of its own: each request holds the name.
    pub(super) fn of_a_worker(&self) -> Self {
        Route { name: (*self.name).into(), ..self.clone() }
    }

    /// Whether requests are served while revocations may be missing here. `None`: as `store.on_stale` says.
    pub fn serves_stale(&self) -> Option<bool> {
        self.on_stale.map(|on_stale| on_stale == OnStale::Serve)
    }

    /// Returns true if the method decides whether this route matches, or whether a token is needed.
    pub fn decides_by_method(&self) -> bool {
        !self.methods.is_empty() || self.preflight
    }

    /// Returns true if no request without a valid token passes, whatever its method.
    pub fn always_needs_token(&self) -> bool {
        self.enforce && self.access != Access::Public
    }

    /// Returns true if this route may accept a request that the rules of `other` reject.
    pub fn asks_for_less_than(&self, other: &Route) -> bool {
        if other.enforce && !self.certificate.implies(&other.certificate) {
            return true;
        }
        match (&self.access, &other.access) {
            (_, Access::Public) => false,
            _ if !other.enforce => false,
            (Access::Public, _) => true,
            (Access::Token(own), Access::Token(others)) => {
                !self.enforce || self.audience() != other.audience() || !own.imply(others)
            }
        }
    }

    /// The audience that a token needs here.
    pub fn audience(&self) -> NeededAudience<'_> {
        self.resource.as_ref().map_or(NeededAudience::Gateway, |resource| NeededAudience::Resource(&resource.url))
    }

    /// Scopes that are enough here, separated by spaces. Empty if none are needed.
    pub fn needed_scope(&self) -> String {
        match &self.access {
            Access::Public => String::new(),
            Access::Token(rules) => rules.needed_scope(),
        }
    }

    /// The rules for the token, in words.
    pub fn rules(&self) -> String {
        match &self.access {
            Access::Public => "none".to_owned(),
            Access::Token(rules) => rules.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_asks_for_less_if_it_accepts_what_the_other_rejects() {
        let everything = Route::everything();
        let public = Route { access: Access::Public, ..everything.clone() };
        let certificate = CertificateRule { is_required: true, names: Vec::new() };
        let mutual = Route { certificate, ..public.clone() };
        let reports = Route { enforce: false, ..everything.clone() };
        for (route, other, expected) in [
            (&public, &everything, true),
            (&reports, &everything, true),
            (&everything, &everything, false),
            (&everything, &public, false),
            (&public, &public, false),
            (&public, &reports, false),
            (&everything, &reports, false),
            (&public, &mutual, true),
            (&everything, &mutual, true),
            (&mutual, &public, false),
            (&mutual, &everything, true),
        ] {
            assert_eq!(route.asks_for_less_than(other), expected, "{route:?} {other:?}");
        }
    }

    #[test]
    fn a_method_decides_by_the_list_of_methods_or_as_a_preflight() {
        let everything = Route::everything();
        assert!(!everything.decides_by_method());
        assert!(Route { methods: vec![Method::GET], ..everything.clone() }.decides_by_method());
        assert!(Route { preflight: true, ..everything }.decides_by_method());
    }
}
