//! Clients that the operator keeps out (`oauth.denied_clients`).

use super::client_document;
use crate::types::reject::{Reason, Reject};

/// Client ids, and hosts of documents that describe clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedClients(pub Vec<String>);

impl DeniedClients {
    /// Rejects a client of the list. It comes before all that a client could cause: a fetch of its document, or a look
    /// at its code.
    pub fn check(&self, client_id: &str) -> Result<(), Reject> {
        // A host of a list in capitals is the same host. A client id is one text.
        let host = client_document::host_of(client_id).unwrap_or_default();
        let names = |denied: &&String| **denied == client_id || !host.is_empty() && denied.eq_ignore_ascii_case(host);
        match self.0.iter().find(names) {
            Some(denied) => Err(Reject::new(Reason::ClientDenied, format!("{denied:?} is in oauth.denied_clients"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_denied_by_its_id_or_by_the_host_of_its_document() {
        let denied = ["spa", "bwd1_x", "evil.example", "Loud.Example", "https://app.example/one"].map(str::to_owned);
        let denied = DeniedClients(denied.into());
        for (client_id, is_denied) in [
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
            let rejected = denied.check(client_id).is_err_and(|reject| reject.reason == Reason::ClientDenied);
            assert_eq!(rejected, is_denied, "{client_id}");
        }
        assert!(DeniedClients::default().check("spa").is_ok());
    }
}
