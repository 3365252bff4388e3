//! The shared store: a PostgreSQL database for any number of gateways.
//!
//! `settings` says where the database is, `connect` and `tls` open one connection, and `session` runs statements on it.
//! `connections` keeps several of them open and repeats operations, `driver` owns the thread that does all of this.
//! `error` says what a failed statement means.
//!
//! No transaction is open while the gateway waits for a response of the database: each change is one statement. A
//! gateway that is stopped or cut off therefore holds no lock.

// Until the operations use all of it.
#![allow(dead_code)]

mod connect;
mod connections;
mod driver;
mod error;
mod session;
mod settings;
mod tls;

#[cfg(test)]
mod tests;

pub use settings::{Host, OnStale, PasswordSource, Settings, Target, UrlError, is_schema_name};
pub use tls::Tls;
