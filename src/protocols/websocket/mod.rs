//! WebSockets: the upgrade, and the bytes after it.
//!
//! A tunnel opens only after the backend has responded with 101 and `Upgrade: websocket` (Pingora CVE-2026-2833 opened
//! one earlier, for any `Upgrade`). Other protocols are not tunnelled: their `Upgrade` is dropped, and the request
//! continues as an ordinary one. Over HTTP/2, a WebSocket begins with an extended CONNECT ([`http2`]); after that, both
//! are the same.

mod frames;
pub mod http2;
mod tunnel;
mod upgrade;

pub use tunnel::{Tunnel, TunnelEnd};
pub use upgrade::{
    UpgradeRequest, accept_upgrade, asks_for_websocket, is_upgrade_request, set_upgrade_headers, take_upgrade,
};
