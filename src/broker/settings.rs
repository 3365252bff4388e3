//! The settings of issued tokens.

use std::time::Duration;

use crate::tokens::family::Lifetimes;

/// Maximum size in bytes of the body of a call that the gateway handles itself.
pub const BODY_LIMIT: u64 = 8 * 1024;

/// The same at a token endpoint that exchanges tokens: each call has two of them.
pub const EXCHANGE_BODY_LIMIT: u64 = 24 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct BrokerSettings {
    pub issuer: String,
    /// The `aud` of an access token if its family names none.
    pub audience: Vec<String>,
    /// `route.resource`, each once.
    pub resources: Vec<String>,
    pub lifetimes: Lifetimes,
    /// `tokens.lifetime_jitter`, in percent: an access token lives up to this much shorter.
    pub lifetime_jitter: u8,
    /// `limits.token_size`. A longer access token is not issued, because the gateway would reject it.
    pub token_size: usize,
    /// Maximum number of live families of one subject. One more revokes the least recently used.
    pub sessions_per_subject: usize,
    /// `timeouts.store`
    pub store_timeout: Duration,
    /// If true, `expiresAt` is in milliseconds instead of seconds.
    pub expires_at_milliseconds: bool,
    /// If true, a response has `tokenId` and `expiresIn` besides the four fields.
    pub extra_fields: bool,
    /// `tokens.certificate_bound`
    pub certificate_bound: bool,
}
