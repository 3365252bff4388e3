//! `upstream.rewrite_redirects`: redirects of a backend to itself become redirects to the gateway.

use http::HeaderMap;

use crate::gateway::context::RequestContext;
use crate::protocols::http::redirects::{self, ClientUrl, NamedOrigin};
use crate::protocols::http::target::without_port;
use crate::upstream::Upstream;

/// Without one of the fields, this costs one pass over the names.
pub(super) fn rewrite(headers: &mut HeaderMap, upstream: &Upstream, context: &RequestContext<'_>) {
    let Some(host) = context.host() else { return };
    let over_tls = context.source.is_https();
    let scheme = if over_tls { "https" } else { "http" };
    let prefix = context.route.as_ref().and_then(|route| route.strip_prefix.as_deref());
    let client = ClientUrl { scheme, authority: host, prefix };
    redirects::rewrite(headers, client, |origin| is_backend(origin, upstream, host, over_tls));
    if let Some(prefix) = prefix {
        prefix.add_to_cookies(headers);
    }
}

/// `host` and `over_tls`: how the client reached the gateway.
fn is_backend(origin: &NamedOrigin<'_>, upstream: &Upstream, host: &str, over_tls: bool) -> bool {
    let own_host = upstream.host.to_str().unwrap_or_default();
    let sent_host = if upstream.settings.preserve_host { host } else { own_host };
    let is_client_host = origin.host.eq_ignore_ascii_case(without_port(host));
    let names_server = |tls: bool| {
        // A redirect from http:// to https:// of the same host asks the client to use TLS.
        let is_upgrade = is_client_host && tls && !over_tls && origin.tls.is_some();
        let port = origin.port.unwrap_or(if tls { 443 } else { 80 });
        !is_upgrade && upstream.is_own_origin(tls, origin.host, port, without_port(sent_host))
    };
    let schemes = origin.tls.map_or(&[false, true][..], |tls| if tls { &[true] } else { &[false] });
    // A backend that is reached without TLS takes the client's host for its own, with http://.
    let lacks_tls = || origin.authority.eq_ignore_ascii_case(host) && upstream.settings.servers.iter().any(|s| !s.tls);
    schemes.iter().any(|tls| names_server(*tls)) || (origin.tls == Some(false) && lacks_tls())
}
