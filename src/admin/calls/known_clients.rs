//! The clients that the gateway knows without its store.

use crate::tokens::authorization::denied_clients::DeniedClients;

pub struct KnownClients {
    /// `[[oauth.client]]`
    pub registered: Vec<String>,
    /// With a document in the memory of this gateway, and its name.
    pub documents: Vec<(String, Option<String>)>,
    /// `oauth.denied_clients`
    pub denied: DeniedClients,
}
