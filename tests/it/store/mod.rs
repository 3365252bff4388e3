//! The store: the contract of every implementation, and the further promises of the embedded one.

pub mod embedded;
mod failure;
pub mod locked;
pub mod postgres;
mod scale;
mod storm;
pub(crate) mod suite;
