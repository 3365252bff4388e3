//! bearward: a reverse-proxy auth gateway that enforces and brokers tokens.

pub mod access_log;
pub mod admin;
pub mod clock;
pub mod config;
pub mod family;
pub mod headers;
pub mod ids;
pub mod reject;
pub mod route;
pub mod secret;
pub mod server;
pub mod store;
pub mod tls;
pub mod token;
pub mod upstream;
