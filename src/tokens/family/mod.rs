//! A family: one login, and all tokens that were issued from it. Operators know it as a session.
//!
//! The store keeps one row for each family, and none for a rotation. The row contains a counter (the **generation**)
//! and a random salt, and no token: [`refresh_token`] derives the token of any generation from the salt and a root
//! secret outside the store. [`rotation`] decides the outcome of a presented refresh token, with [`ReuseRule`] for one
//! that is spent. [`revocation`] lists what can be revoked. An [`api_key`] is a family that has a hash of one secret
//! instead.

pub mod api_key;
mod claims;
mod grant;
pub mod handle;
mod key_rate;
mod lifetimes;
mod origin;
mod record;
pub mod refresh_token;
mod reuse_rule;
pub mod revocation;
pub mod rotation;
mod token_text;

pub use claims::{auth_time, claims_of, has_client_auth, with_auth_time, with_auth_time_of_provider, with_client_auth};
pub use grant::{Grant, Superseded};
pub use key_rate::KeyRate;
pub use lifetimes::Lifetimes;
pub use origin::FamilyOrigin;
pub use record::{Family, RevokeReason, RevokedAt};
pub use reuse_rule::ReuseRule;
