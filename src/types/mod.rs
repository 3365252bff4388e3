//! The words that every other module uses: time, ids, secrets, reasons, traces.

pub mod clock;
pub mod close_reason;
pub mod ids;
pub mod reject;
pub mod secret;
pub mod trace;
