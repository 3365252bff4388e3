//! Step 2: may this caller use this route? Pure. The only maker of a [`Permit`], without which nothing is forwarded.

use std::sync::Arc;

use http::{HeaderMap, Method, header};

use crate::auth::authenticate::Caller;
use crate::auth::token_cache::CachedToken;
use crate::gateway::route::{Access, Route};
use crate::types::reject::Reject;

/// A request that may go to its route's upstream.
pub struct Permit {
    route: Arc<Route>,
    caller: Option<Caller>,
    observed: Option<Arc<Reject>>,
}

impl Permit {
    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// `None` on a public route, for a preflight, and for a request that is only observed.
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// Whose end is also the end of what is permitted here. `None` also where the route only observes.
    pub fn holder(self) -> Option<Arc<CachedToken>> {
        self.caller.filter(|_| self.route.enforce).map(Caller::into_cached)
    }

    /// What the request would have been refused for, if its route enforced that.
    pub fn observed(&self) -> Option<&Arc<Reject>> {
        self.observed.as_ref()
    }
}

/// The permit of a request that needs no token; the route back if it needs one. A token that comes along is not looked at,
/// and says nothing about anybody.
pub fn without_token(route: Arc<Route>, method: &Method, headers: &HeaderMap) -> Result<Permit, Arc<Route>> {
    let open = match route.access {
        Access::Public => true,
        Access::Token(_) => route.preflight && is_preflight(method, headers),
    };
    if open { Ok(Permit { route, caller: None, observed: None }) } else { Err(route) }
}

/// A browser sends preflights without credentials, always (Fetch standard, CORS protocol).
fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The permit of a caller whose token keeps the route's rules. A route that only observes gives one to everybody else as well,
/// and says what they would have been refused for: nobody's permit, as a token that is refused says nothing about anybody.
pub fn authorize(route: Arc<Route>, caller: Result<Caller, Reject>) -> Result<Permit, Reject> {
    let allowed = caller.and_then(|caller| match &route.access {
        Access::Token(rules) => rules.check(caller.token()).map(|()| caller),
        Access::Public => Ok(caller),
    });
    match allowed {
        Ok(caller) => Ok(Permit { route, caller: Some(caller), observed: None }),
        Err(refusal) if route.enforce => Err(refusal),
        Err(refusal) => Ok(Permit { route, caller: None, observed: Some(Arc::new(refusal)) }),
    }
}
