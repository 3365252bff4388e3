//! Clients that the operator keeps out (`oauth.denied_clients`).

use std::time::Duration;

use super::client_document;
use super::client_registration::ClientRegistration;
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Client ids, and hosts: of documents that describe clients, and those that the codes of clients go to that have
/// registered themselves, also private schemes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedClients(pub Vec<String>);

impl DeniedClients {
    /// Rejects a client of the list. It comes before all that a client could cause: a fetch of its document, or a look
    /// at its code. `roots` open the id of a client that has registered itself.
    pub fn check(&self, client_id: &str, roots: &Roots) -> Result<(), Reject> {
        if self.0.is_empty() {
            return Ok(());
        }
        if self.0.iter().any(|denied| denied == client_id) {
            return Err(denied(client_id));
        }
        match client_document::host_of(client_id) {
            Ok(host) => self.check_host(host),
            Err(_) => self.check_registration(client_id, roots),
        }
    }

    fn check_registration(&self, client_id: &str, roots: &Roots) -> Result<(), Reject> {
        // Also if it has ended: its sessions go on.
        let Some(registration) = ClientRegistration::open(client_id, roots, Duration::MAX, UnixTime::from_secs(0))
        else {
            return Ok(());
        };
        let goes_to = registration.redirect_uris.iter().filter_map(|uri| uri.host().or(uri.private_scheme()));
        goes_to.into_iter().try_for_each(|host| self.check_host(host))
    }

    /// A host of a list in capitals is the same host. A client id is one text.
    fn check_host(&self, host: &str) -> Result<(), Reject> {
        match self.0.iter().find(|listed| listed.eq_ignore_ascii_case(host)) {
            Some(listed) => Err(denied(listed)),
            None => Ok(()),
        }
    }
}

fn denied(listed: &str) -> Reject {
    Reject::new(Reason::ClientDenied, format!("{listed:?} is in oauth.denied_clients"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::authorization::redirect_uri::RedirectUri;
    use crate::types::secret::Secret;

    fn roots() -> Roots {
        Roots::new((1, Secret::new(vec![7; 32])), vec![])
    }

    fn registered(redirect_uris: &[&str]) -> String {
        let parsed = redirect_uris.iter().map(|uri| RedirectUri::parse(uri).expect("a redirect URI"));
        let registration = ClientRegistration { name: None, redirect_uris: parsed.collect(), registered_at: 1_000 };
        registration.seal(&roots()).expect("there is a root secret")
    }

    #[test]
    fn a_client_is_denied_by_its_id_or_by_the_host_of_its_document() {
        let denied = ["spa", "bwd1_x", "evil.example", "Loud.Example", "https://app.example/one"].map(str::to_owned);
        let denied = DeniedClients(denied.into());
        let loud = registered(&["http://127.0.0.1/callback", "https://loud.example/callback"]);
        let other = registered(&["https://www.evil.example/callback", "com.example.app:/callback"]);
        for (client_id, is_denied) in [
            (&*loud, true),
            (&other, false),
            ("spa", true),
            ("SPA", false),
            ("spa2", false),
            ("bwd1_x", true),
            ("https://evil.example/client", true),
            ("https://evil.example:8443/client?x", true),
            ("https://loud.example/client", true),
            ("https://www.evil.example/client", false),
            ("https://app.example/one", true),
            ("https://app.example/two", false),
            ("", false),
        ] {
            let rejected = denied.check(client_id, &roots()).is_err_and(|reject| reject.reason == Reason::ClientDenied);
            assert_eq!(rejected, is_denied, "{client_id}");
        }
        assert!(DeniedClients::default().check(&loud, &roots()).is_ok());
    }
}
