//! Reports of identity providers: logout tokens (OpenID Connect Back-Channel Logout 1.0) and security event tokens (RFC
//! 8417; Shared Signals Framework 1.0, CAEP 1.0, RISC 1.0). Pure.
//!
//! [`logout_token`] and [`security_event`] read the claims of a token with a verified signature. `effect` decides what
//! an event revokes. A provider names a session by the `sid` of its own tokens, or a user by `sub`, always together
//! with its issuer: two providers may use the same names.

mod claims;
mod effect;
mod event_error;
mod event_kind;
pub mod logout_token;
pub mod security_event;
pub mod stream_state;
mod subject_id;

pub use effect::{Effect, EffectSettings, NoEffect};
pub use event_error::{EventError, EventErrorCode};
