//! Why a provider gave no tokens that can be used.

use crate::types::reject::{Reason, Reject};

/// Why there are no tokens.
pub(super) enum NoTokens {
    /// The provider rejects the code or the refresh token for good.
    InvalidGrant,
    /// It responds with something that cannot be used. The next response may be better.
    Failed(String),
    /// It responds with tokens that are good, and for another user.
    OtherUser(String),
    /// It does not respond.
    Unavailable(String),
}

impl NoTokens {
    /// For the browser that signs in.
    pub(super) fn reject(self) -> Reject {
        match self {
            NoTokens::InvalidGrant => Reject::new(Reason::SignInFailed, "the provider rejects the code: invalid_grant"),
            NoTokens::Failed(detail) | NoTokens::OtherUser(detail) => Reject::new(Reason::SignInFailed, detail),
            NoTokens::Unavailable(detail) => Reject::new(Reason::ProviderUnavailable, detail),
        }
    }

    /// For the log.
    pub(super) fn detail(self) -> String {
        match self {
            NoTokens::InvalidGrant => "invalid_grant".to_owned(),
            NoTokens::Failed(detail) | NoTokens::OtherUser(detail) | NoTokens::Unavailable(detail) => detail,
        }
    }
}

pub(super) fn failed(detail: &'static str) -> NoTokens {
    NoTokens::Failed(detail.to_owned())
}
