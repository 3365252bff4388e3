//! The token broker: it issues token families, refreshes and revokes them, and manages the keys that sign.
//!
//! [`refresh`] and [`revoke`] are the two calls that clients make; `issue` creates families for the admin API and for
//! captured logins; [`keys`] rotates the signing keys; `event_stream` and `event_poll` receive what other issuers
//! report. [`Broker`] is what they share: the store, the secrets and the settings.

mod access_grants;
mod api_keys;
mod authorization_codes;
mod client;
mod detached;
mod event_poll;
mod event_stream;
mod event_verification;
mod issue;
mod key_error;
mod key_file;
mod key_tools;
pub mod keys;
mod polled_events;
mod provider_events;
pub mod refresh;
mod refresh_counts;
mod refresh_turns;
mod report_counts;
pub mod revoke;
mod service;
mod settings;
pub mod sign_in;
mod store_error;
mod token_pair;

pub use access_grants::AccessGrant;
pub use api_keys::IssuedKey;
pub use authorization_codes::RedeemedCode;
pub use client::check_client_id;
pub use detached::Detached;
pub use event_poll::{EventPoll, poll_events};
pub use event_stream::{EventRejected, EventStream, MAX_EVENT};
pub use event_verification::{EventVerification, verify_stream};
pub use key_error::KeysError;
pub use key_file::KeyFile;
pub use key_tools::KeyTools;
pub use refresh_counts::RefreshCounts;
pub use refresh_turns::RefreshTurns;
pub use report_counts::{ReportCounts, ReportOutcome};
pub use service::Broker;
pub use settings::{BODY_LIMIT, BrokerSettings, EXCHANGE_BODY_LIMIT};
pub use token_pair::TokenPair;
