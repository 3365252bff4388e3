//! The methods of a route: which it accepts, and what a 405 names. Pure.

use http::{HeaderValue, Method};

use crate::gateway::route::Route;
use crate::types::per_worker::PerWorker;
use crate::types::reject::{Reason, Reject};

/// Returns true if the route is for requests with this method.
pub(super) fn matches_method(route: &Route, method: &Method) -> bool {
    (route.methods.is_empty() && !echoes(method))
        || route.methods.contains(method)
        || (route.preflight && *method == Method::OPTIONS)
}

/// Returns true for TRACE, and for the TRACK of old servers. A backend that supports them responds with the request:
/// the client would read the token that replaced its own, and the identity headers.
fn echoes(method: &Method) -> bool {
    ["TRACE", "TRACK"].iter().any(|echoing| method.as_str().eq_ignore_ascii_case(echoing))
}

/// `Allow` of a route for all methods. There are more, but clients of more than these are rare.
static ANY_METHOD: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// The rejection of a method that none of these routes of one path has.
pub(super) fn method_not_allowed<'t>(routes: impl Iterator<Item = &'t PerWorker<Route>>) -> Reject {
    let mut names: Vec<&str> = Vec::new();
    for route in routes {
        let methods = if route.methods.is_empty() { &ANY_METHOD[..] } else { &route.methods };
        let preflight = route.preflight.then_some(&Method::OPTIONS);
        for name in methods.iter().chain(preflight).map(Method::as_str) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Reject::from(Reason::MethodNotAllowed).with_allow(HeaderValue::from_str(&names.join(", ")).ok())
}
