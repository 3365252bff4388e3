//! Failures of a token exchange.

use crate::types::reject::{Reason, Reject};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server cannot be reached, or has a failure of its own: the same request may succeed later.
    Unavailable(String),
    /// The server did not respond to the last exchanges, and was not asked.
    Skipped,
    /// The server rejects the exchange, or its response is not one.
    Failed(String),
}

impl Failure {
    pub(super) fn reject(&self, exchange: &str) -> Reject {
        let (reason, why) = match self {
            Failure::Unavailable(why) => (Reason::TokenExchangeUnavailable, why.as_str()),
            Failure::Skipped => {
                (Reason::TokenExchangeUnavailable, "the server did not respond in time to the last exchanges")
            }
            Failure::Failed(why) => (Reason::TokenExchangeFailed, why.as_str()),
        };
        Reject::new(reason, format!("token_exchange {exchange}: {why}"))
    }
}
