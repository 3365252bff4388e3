//! What a user has granted to a client: a session, what its audit event says besides, and how many there can be.

use crate::tokens::family::Family;

/// The session of a client that a user has agreed to.
#[derive(Clone, Debug)]
pub struct GrantedFamily {
    pub family: Family,
    /// Where the code went: the host of the redirect URI, or its private scheme.
    pub redirect_host: String,
    /// `oauth.sessions_per_client`: maximum number of live sessions that this user has granted to this client.
    pub max_live: usize,
}
