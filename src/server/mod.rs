//! Listeners and workers: accept a connection, shake hands, read requests and hand each to the gateway.
//!
//! A worker is one thread with a current-thread runtime, its own listeners (SO_REUSEPORT) and its own upstream
//! connections. A connection stays on the core that accepted it.
//!
//! The way of a connection: `worker` accepts it, `admission` checks the limits, the PROXY protocol header and TLS,
//! `connection` passes its requests to the gateway, and `http1` or `http2` drives it until it ends. `acme` gets the
//! certificates that no file has.

pub mod acme;
mod admission;
mod client_io;
mod client_streams;
mod connection;
mod corked_stream;
mod crowd;
mod disconnect;
mod exchange;
mod executor;
mod flood;
mod handshake;
mod handshake_io;
mod http1;
mod http2;
mod idle;
mod idle_list;
mod linger;
mod linger_slots;
mod proxied;
mod request_heads;
mod retry_delay;
mod settings;
mod shared;
mod trailers;
mod transport;
mod unwritten;
mod worker;

pub use idle_list::IdleList;
pub use retry_delay::RetryDelay;
pub use settings::{ConnectionSettings, FloodSettings, LingerSettings, ListenerSettings};
pub use shared::Shared;
pub use worker::{Listener, spawn};
