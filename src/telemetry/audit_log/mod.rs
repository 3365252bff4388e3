//! Delivers audit events from the store's outbox to a file or a webhook: in order, at least once, and with retries.
//!
//! An event leaves the outbox when the file is flushed to the disk, or when the webhook has responded with 2xx. After a
//! crash in between, the event is delivered again: the file recognises its own last line and takes each event once, and
//! the receiver of a webhook recognises duplicates by `seq`. While deliveries fail, up to `audit.outbox` events wait.
//! Requests never wait.

mod delivery;
mod error;
mod file;
mod progress;
mod settings;

pub use delivery::{Delivery, check};
pub use error::DeliveryError;
pub use progress::Progress;
pub use settings::{AuditLogSettings, AuditLogTarget};
