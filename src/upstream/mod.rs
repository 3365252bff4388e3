//! The backends: groups of servers, and each worker's connection pools to them.
//!
//! [`Upstream::send`] (`group`) picks a server (`balance`) and sends the request (`send`) over a connection of the
//! `pool`. A request is sent a second time only if that does no harm (`retry`), within a `retry_budget`. `outlier` and
//! `health` decide which servers are in rotation. `maintenance` runs the background tasks.

mod balance;
mod check_schedule;
mod connect;
mod failure;
mod group;
mod health;
mod io;
mod maintenance;
mod outlier;
mod own_origin;
mod pool;
mod pooled_connection;
mod report;
mod resolve;
mod retry;
mod retry_budget;
mod send;
mod server_state;
mod settings;
mod slots;
mod weights;

pub use failure::{Failure, UpstreamError};
pub use group::{CurrentServer, Upstream};
pub use maintenance::maintain;
pub use pooled_connection::{BrokenResponses, PooledConnection};
pub use report::Report;
pub use retry::Counts;
pub use send::UpstreamResponse;
pub use settings::{
    Balance, EjectionSettings, ExpectedStatus, HealthCheckSettings, Key, MAX_SERVERS, Protocol, ServerSettings,
    UpstreamSettings, UpstreamTlsSettings,
};

#[cfg(test)]
mod tests;
