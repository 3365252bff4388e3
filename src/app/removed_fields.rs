//! The request headers that only the gateway sets, by the whole configuration: no client may send them to a backend.

use http::HeaderName;

use crate::config::Config;
use crate::gateway::forward_auth;
use crate::gateway::route::Route;
use crate::protocols::http::client_cert::CLIENT_CERT;
use crate::protocols::http::forwarded::{ClientCert, Forwarding};
use crate::protocols::http::headers::{Hygiene, METHOD_OVERRIDES, X_FORWARDED_PREFIX, X_REAL_IP};
use crate::tokens::login::LoginHeaders;

/// `login`: the headers of `[login]`, if a route captures logins.
pub(super) fn hygiene(config: &Config, login: Option<&LoginHeaders>) -> Hygiene {
    let decides_by_method = config.routes.iter().any(Route::decides_by_method);
    let overrides: &[HeaderName] = if decides_by_method { &METHOD_OVERRIDES } else { &[] };
    let removed = overrides.iter().chain(login.into_iter().flat_map(LoginHeaders::names));
    let Forwarding { sets_real_ip, client_cert, fields, .. } = &config.forwarding;
    let of_routes = config.routes.iter().flat_map(|route| &route.request_headers);
    let of_routes = of_routes.flat_map(|rules| rules.only_by_gateway());
    let strips = config.routes.iter().any(|route| route.strip_prefix.is_some());
    let of_routes = of_routes.chain(strips.then_some(&X_FORWARDED_PREFIX));
    let own = config.identity.names().chain(removed).chain(of_routes).chain(sets_real_ip.then_some(&X_REAL_IP));
    // A proxy that calls another path than forward_auth.path must not show the secret to a backend.
    let own = own.chain(config.forward_auth.is_some().then_some(&forward_auth::SECRET));
    let own = own.chain((*client_cert != ClientCert::Off).then_some(&CLIENT_CERT));
    Hygiene::new(own, fields)
}
