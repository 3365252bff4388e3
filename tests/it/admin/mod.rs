//! The operators' listener.

mod explain;
mod issue;
mod limits;
mod listener;
mod lists;
mod metrics;
mod operators;
mod page;
mod reference;
mod rejections;
mod revocations;
mod search;
mod socket;
mod stats;
mod trust;
