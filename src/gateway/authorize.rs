//! Authorization: decides whether this caller may use this route. Pure. Only this module makes a [`Permit`], and
//! nothing is forwarded without one.

use std::sync::Arc;

use http::{HeaderMap, Method};

use crate::auth::authenticate::Caller;
use crate::auth::token_cache::CachedToken;
use crate::gateway::cors::is_preflight;
use crate::gateway::route::{Access, Route};
use crate::tokens::jwt::VerifiedToken;
use crate::types::reject::Reject;

/// Proof that a request may go to the upstream of its route.
pub struct Permit {
    route: Arc<Route>,
    caller: Option<Caller>,
    observed: Option<Arc<Reject>>,
}

impl Permit {
    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// `None` on a public route, for a preflight, and if the route does not enforce a rejection.
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// The token that ends the stream when it ends. `None` also if the route does not enforce.
    pub fn into_token(self) -> Option<Arc<CachedToken>> {
        if self.route.enforce { self.caller.map(Caller::into_cached) } else { None }
    }

    /// The same permit after a rejection. As [`authorize`], for what is checked later.
    pub fn unless_rejected(self, checked: Result<(), Reject>) -> Result<Self, Reject> {
        match checked {
            Ok(()) => Ok(self),
            Err(reject) if self.route.enforce => Err(reject),
            Err(reject) => Ok(Permit { route: self.route, caller: None, observed: Some(Arc::new(reject)) }),
        }
    }

    /// Why the request would be rejected if its route enforced that.
    pub fn observed(&self) -> Option<&Arc<Reject>> {
        self.observed.as_ref()
    }
}

/// Returns the permit of a request that needs no token, or the route if it needs one. A token in the request is not
/// verified and identifies no caller.
///
/// `has_certificate`: the client certificate meets the route's rule. A public route needs nothing else. A preflight
/// never has one: browsers send it without credentials.
pub fn without_token(
    route: Arc<Route>,
    method: &Method,
    headers: &HeaderMap,
    has_certificate: bool,
) -> Result<Permit, Arc<Route>> {
    let open = match route.access {
        Access::Public => has_certificate || route.preflight && is_preflight(method, headers),
        Access::Token(_) => route.preflight && is_preflight(method, headers),
    };
    if open { Ok(Permit { route, caller: None, observed: None }) } else { Err(route) }
}

/// Returns the permit of a caller with a token that meets the route's rules. A route with `enforce = false` also
/// permits every other request, without a caller and with the reason for which it would be rejected.
pub fn authorize(route: Arc<Route>, caller: Result<Caller, Reject>) -> Result<Permit, Reject> {
    let allowed = caller.and_then(|caller| check_rights(&route, caller.token()).map(|()| caller));
    match allowed {
        Ok(caller) => Ok(Permit { route, caller: Some(caller), observed: None }),
        Err(reject) if route.enforce => Err(reject),
        Err(reject) => Ok(Permit { route, caller: None, observed: Some(Arc::new(reject)) }),
    }
}

/// Rejects a token that does not meet the rules of its route. A stream calls this again when the rights of its token
/// change.
pub fn check_rights(route: &Route, token: &VerifiedToken) -> Result<(), Reject> {
    match &route.access {
        Access::Token(rules) => rules.check(token),
        Access::Public => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;
    use crate::gateway::rules::Rules;

    #[test]
    fn only_a_preflight_of_its_route_needs_no_token() {
        let fields = [
            (header::ORIGIN, HeaderValue::from_static("https://app.example")),
            (header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("GET")),
        ];
        let asks = HeaderMap::from_iter(fields);
        let needs_token = |access: Access, preflight, method, headers: &HeaderMap| {
            let route = Arc::new(Route { access, preflight, ..Route::everything() });
            without_token(route, &method, headers, true).is_err()
        };
        for (preflight, method, headers, expected) in [
            (true, Method::OPTIONS, &asks, false),
            (false, Method::OPTIONS, &asks, true),
            (true, Method::GET, &asks, true),
            (true, Method::OPTIONS, &HeaderMap::new(), true),
        ] {
            let needs = needs_token(Access::Token(Rules::default()), preflight, method.clone(), headers);
            assert_eq!(needs, expected, "{preflight} {method}");
            assert!(!needs_token(Access::Public, preflight, method, headers));
        }
    }
}
