//! The hosts of DPoP proofs: a warning where clients have bound tokens, and no proof of theirs would be accepted.

use crate::auth::proofs::{OwnHosts, ProofRule};
use crate::config::document::error::{ConfigError, Place};
use crate::config::document::table::Table;
use crate::config::settings::Config;
use crate::gateway::route::{Access, Capture, Route};
use crate::protocols::tls::ServerTlsSettings;
use crate::server::ListenerSettings;
use crate::tokens::jwt::Confirmation;

/// `places`: those of the listeners. The first listener reports for all.
pub(super) fn report(root: &Table<'_>, config: &Config, places: &[Place]) {
    if !has_bound_tokens(config) || !config.own_hosts().are_local() {
        return;
    }
    let nameless = config.listeners.iter().zip(places).find(|(listener, place)| !knows_hosts(listener, place));
    let Some((_, place)) = nameless else { return };
    let warning = ConfigError::new(
        "a DPoP proof gets 401 on this listener: no key names a host of the gateway",
        "expected a host, so that a proof for another server is not accepted",
    );
    let help = "set tokens.issuer to the URL of the gateway, or add its host to https.hosts";
    root.report().warn(warning.help(help).at(place));
}

/// Returns true if the certificate of this listener names the hosts of its proofs. A listener for this machine alone
/// needs no other name than that of this machine, and neither does that of a file without `[[listener]]`: a trial.
fn knows_hosts(listener: &ListenerSettings, place: &Place) -> bool {
    if listener.tls == ServerTlsSettings::Off {
        return false;
    }
    if listener.address.ip().is_loopback() || place.span.is_none() {
        return true;
    }
    let names = listener.tls.names();
    let mut hosts = OwnHosts::default();
    hosts.extend(names.iter().map(String::as_str));
    !hosts.are_local()
}

/// Returns true if the configuration shows that clients may have tokens with a key.
fn has_bound_tokens(config: &Config) -> bool {
    let checks = |route: &Route| route.access != Access::Public && route.proof != ProofRule::Off;
    let requires = |route: &Route| route.proof == ProofRule::Required;
    let logs_in = |route: &Route| route.capture == Some(Capture::Login);
    let is_foreign = config.issuers.iter().any(|issuer| issuer.policy.confirmation == Confirmation::Check);
    let binds = config.oauth.token_endpoint.is_some() || config.routes.iter().any(logs_in);
    config.routes.iter().any(requires) || config.routes.iter().any(checks) && (is_foreign || binds)
}
