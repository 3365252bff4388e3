//! Refreshes and revocations, and both in random orders.

pub mod interleavings;
pub mod refresh;
pub mod revoke;
