//! Client connections: idle connections, lingering close, rejected uploads, options of sockets, writes of HTTP/2.
//! Certificates that the gateway gets itself.

pub mod acme;
pub mod http2_writes;
pub mod idle;
pub mod linger_slots;
pub mod lingering_close;
pub mod rejected_uploads;
pub mod sockets;
