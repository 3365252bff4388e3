//! Certificates from an ACME server (RFC 8555), by TLS-ALPN-01 (RFC 8737) on the listeners themselves.
//!
//! All that lasts is in the store, sealed: the key of the account, and for each name its certificate, its order and
//! its failures (`state`). `entries` reads and writes it, and hands it to the listeners. One gateway at a time
//! orders, which a lease and the versions of the entries ensure (`worker`); all gateways answer validations and use
//! the certificates (`follower`). `schedule` says when: by renewal information (`renewal_info`, RFC 9773) or by
//! age, and later after each failure. `order` leads one order from its beginning, or from where a killed gateway
//! left it, to a certificate, over `authority`.

mod account;
mod authority;
mod entries;
mod failure;
mod follower;
mod order;
mod renewal_info;
mod schedule;
mod settings;
mod state;
mod worker;

pub use entries::{AcmeCounts, Entries, Wanted};
pub use follower::follow;
pub use settings::{AcmePace, AcmeSettings};
pub use worker::{Worker, work};
