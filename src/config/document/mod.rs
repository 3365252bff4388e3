//! Reading `gateway.toml`: tables with positions, units, and each error with its place.

pub(super) mod error;
pub(super) mod outside;
pub(super) mod record;
pub(super) mod report;
pub(super) mod secrets;
pub(super) mod shape;
pub(super) mod snippets;
pub(super) mod sources;
pub(super) mod suggest;
pub(super) mod syntax;
pub(super) mod table;
mod tokens;
pub(super) mod tree;
pub(super) mod units;
pub(super) mod value;
pub(super) mod warnings;
