//! `client_certificate` and `client_names` of a route: which client certificates its requests need.

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::oauth_client_certificate::Certificates;
use crate::config::sections::placed::Placed;
use crate::gateway::client_certificates::CertificateRule;
use crate::protocols::http::forwarded::{ClientCert, Forwarding};
use crate::protocols::tls::{ClientPolicy, Name};
use crate::server::ListenerSettings;

/// Returns true if a request can have a certificate that an authority has verified.
pub(super) fn can_verify(listeners: &[Placed<ListenerSettings>], forwarding: &Forwarding) -> bool {
    let verifies = |listener: &Placed<ListenerSettings>| {
        listener.value.clients.as_ref().is_some_and(|clients| clients.policy != ClientPolicy::Any)
    };
    listeners.iter().any(verifies) || forwarding.client_cert == ClientCert::Verified
}

/// Which certificates requests can have.
pub(super) fn certificates(listeners: &[Placed<ListenerSettings>], forwarding: &Forwarding) -> Certificates {
    let asks = listeners.iter().any(|listener| listener.value.clients.is_some());
    let can_have = asks || forwarding.client_cert != ClientCert::Off;
    Certificates { can_have, can_verify: can_verify(listeners, forwarding) }
}

/// `can_verify`: see there.
pub(super) fn of_route(table: &mut Table<'_>, can_verify: bool) -> CertificateRule {
    let is_required = table.choice("client_certificate", false, &[("off", false), ("required", true)]);
    let shape = Shape::list(Shape::Pattern("^(dns|uri|ip|email):.+$"));
    let names = table.take("client_names", shape).and_then(|value| value.list_of("[\"dns:orders.internal\"]", name));
    table.default("client_names", Vec::<String>::new());
    if is_required && !can_verify {
        let error = ConfigError::new(
            "no request would have a verified certificate",
            "expected a [[listener]] with client_certificate = \"optional\" or \"required\"",
        );
        let help =
            "add client_certificate and client_ca to a listener, or forwarding.client_certificate = \"verified\"";
        table.reject("client_certificate", error.help(help));
    }
    let names = names.unwrap_or_default();
    if !is_required && !names.is_empty() {
        let expected = "expected client_certificate = \"required\" on this route";
        table.reject("client_names", ConfigError::new("`client_names` has no effect without a certificate", expected));
    }
    CertificateRule { is_required, names }
}

fn name(text: &str) -> Result<Name, ConfigError> {
    let error = || {
        let expected = "expected a type and a name, for example \"dns:orders.internal\" or \"uri:spiffe://example/a\"";
        ConfigError::new(format!("\"{}\" is not a name of a client", text.escape_debug()), expected)
            .help("write dns:, uri:, ip: or email: before the name, and no wildcard")
    };
    Name::parse(text).ok_or_else(error)
}
