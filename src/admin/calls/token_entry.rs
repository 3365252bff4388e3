//! A session in the lists of the admin API.

use std::net::IpAddr;

use serde::Serialize;

use crate::tokens::family::{Family, RevokeReason};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// One family, for operators and for a page "your devices". Times are RFC 3339.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenEntry {
    token_id: TokenId,
    sub: String,
    scope: String,
    client_id: String,
    label: String,
    /// The address of the last client that used it.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<RevokeReason>,
    created_at: String,
    last_used_at: String,
    idle_expiry: String,
    absolute_expiry: String,
}

impl TokenEntry {
    pub(super) fn of(family: Family, now: UnixTime) -> Self {
        TokenEntry {
            token_id: family.id,
            state: match family.revoked {
                Some(_) => "revoked",
                None if family.is_live(now) => "live",
                None => "expired",
            },
            revoked_at: family.revoked.map(|revoked| revoked.at.to_string()),
            reason: family.revoked.map(|revoked| revoked.reason),
            sub: family.subject,
            scope: family.scope,
            client_id: family.client_id,
            label: family.label,
            address: family.address,
            created_at: family.created_at.to_string(),
            last_used_at: family.last_used_at.to_string(),
            idle_expiry: family.idle_expiry.to_string(),
            absolute_expiry: family.absolute_expiry.to_string(),
        }
    }
}
