//! The store: the contract that every implementation keeps, and what the embedded one promises beyond it.

mod embedded;
mod failure;
pub(crate) mod given;
mod storm;
mod suite;
