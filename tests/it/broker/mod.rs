//! Tokens: refresh, revoke, and every order of both.

pub mod interleavings;
pub mod refresh;
pub mod revoke;
