//! Access of clients to the admin API: their Host, their tokens, their roles, and how often they may be wrong.

pub(super) mod guess;
pub(super) mod host;
pub(super) mod operators;
pub(super) mod sessions;
