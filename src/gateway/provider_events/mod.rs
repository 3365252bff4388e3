//! Reports of identity providers to the gateway: back-channel logout, and security events that are pushed.
//!
//! These calls carry no credential of a user, and no cookie of a browser is read. A provider signs what it reports, and
//! each report is used once. A report becomes a revocation by the issuer and its `sid` or `sub`, also if there is no
//! such login: it may be on its way.

mod late;
mod logout;
mod push;
mod reported_logout;

use std::sync::Arc;

use crate::broker::MAX_EVENT;

pub use logout::LogoutReceiver;
pub use push::PushReceiver;

/// Maximum size of a logout token with its form, in bytes.
pub const LOGOUT_LIMIT: u64 = 32 << 10;

/// Maximum size of a security event token in bytes.
pub const EVENT_LIMIT: u64 = MAX_EVENT as u64;

/// Where identity providers report. An [`Endpoint`](crate::gateway::endpoints::Endpoint) names a receiver by its
/// position.
#[derive(Clone, Default)]
pub struct Receivers {
    /// Of each provider.
    pub logouts: Vec<Arc<LogoutReceiver>>,
    /// Of each event stream with a path.
    pub streams: Vec<Arc<PushReceiver>>,
}
