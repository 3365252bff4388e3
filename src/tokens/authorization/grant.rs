//! What a user has granted to a client: a session, and what its audit event says besides.

use crate::tokens::family::Family;

/// The session of a client that a user has agreed to.
#[derive(Clone, Debug)]
pub struct GrantedFamily {
    pub family: Family,
    /// Where the code went: the host of the redirect URI, or its private scheme.
    pub redirect_host: String,
}
