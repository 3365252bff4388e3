//! A session in the lists of the admin API.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;

use crate::admin::state::Admin;
use crate::store::{Revoker, revoked_by_others, shown_reason};
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::Reject;

/// One family, for operators and for a page "your devices". Times are RFC 3339.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenEntry {
    token_id: TokenId,
    sub: String,
    scope: String,
    /// Empty: the configured audience.
    aud: Vec<String>,
    client_id: String,
    label: String,
    /// The address of the last client that used it.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    /// The provider or event stream that reported the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// Where the login was, if not at the gateway itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    created_at: String,
    last_used_at: String,
    idle_expiry: String,
    absolute_expiry: String,
}

/// The entries of these families without the API keys, which have a list of their own. Each with who revoked it.
pub(super) async fn of(admin: &Admin, mut families: Vec<Family>, now: UnixTime) -> Result<Vec<TokenEntry>, Reject> {
    families.retain(|family| family.key_hash.is_none());
    let by_others = revoked_by_others(&families);
    let mut revokers = HashMap::new();
    if !by_others.is_empty() {
        revokers.extend(admin.broker.with_timeout(admin.broker.store.revokers(by_others)).await?);
    }
    Ok(families.into_iter().map(|family| TokenEntry::new(revokers.remove(&family.id), family, now)).collect())
}

impl TokenEntry {
    fn new(by: Option<Revoker>, family: Family, now: UnixTime) -> Self {
        let reason = family.revoked.map(|revoked| shown_reason(revoked.reason, by.as_ref()));
        let (operator, caller, provider) = match by {
            Some(Revoker::Operator(name)) => (Some(name), None, None),
            Some(Revoker::Caller(subject)) => (None, Some(subject), None),
            Some(Revoker::Provider(name)) => (None, None, Some(name)),
            Some(Revoker::Grant(_)) | None => (None, None, None),
        };
        TokenEntry {
            operator,
            caller,
            provider,
            token_id: family.id,
            state: match family.revoked {
                Some(_) => "revoked",
                None if family.is_live(now) => "live",
                None => "expired",
            },
            revoked_at: family.revoked.map(|revoked| revoked.at.to_string()),
            reason,
            issuer: family.origin.map(|origin| origin.issuer),
            sub: family.subject,
            scope: family.scope,
            aud: family.audience,
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
