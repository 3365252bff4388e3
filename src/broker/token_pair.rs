//! The response of a refresh.

use serde::Serialize;

use crate::types::ids::TokenId;

/// The four fields that clients expect, and two more by option.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenPair {
    pub success: bool,
    pub access_token: String,
    pub refresh_token: String,
    /// The access token's `exp`, in seconds since 1970, or by option in milliseconds.
    pub expires_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// How long the access token is valid from now, in seconds.
    #[serde(skip)]
    pub lifetime: u64,
    #[serde(skip)]
    pub scope: String,
    /// If true, the access token needs proofs.
    #[serde(skip)]
    pub is_bound: bool,
    #[serde(skip)]
    pub(super) family: TokenId,
}

impl TokenPair {
    /// The id of the family, also if the response does not show it.
    pub fn token_id(&self) -> TokenId {
        self.family
    }

    /// The names of the members in the JSON.
    pub const fn member_names(extra_fields: bool) -> &'static [&'static str] {
        if extra_fields {
            &["success", "accessToken", "refreshToken", "expiresAt", "tokenId", "expiresIn"]
        } else {
            &["success", "accessToken", "refreshToken", "expiresAt"]
        }
    }

    /// The admin API always shows the family, regardless of the option.
    pub fn include_token_id(&mut self) {
        self.token_id = Some(self.family);
    }
}
