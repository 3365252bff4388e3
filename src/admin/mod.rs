//! The admin listener: health, readiness, metrics, and the admin API for tokens, keys, upstreams and reloads.
//!
//! It listens on a Unix socket for the command line, and on a TCP address for probes, scrapers and backends. It has its
//! own thread, so that it responds while the workers are busy.

mod access;
mod calls;
mod connections;
mod listener;
mod page;
mod probes;
mod readiness;
mod router;
mod settings;
mod slow_readers;
mod state;

pub use access::guess::WrongTokens;
pub use access::operators::{Access, Operator, Operators, Role};
pub use access::sessions::Sessions;
pub use calls::explainer::{Asked, Explain, Explaining};
pub use calls::known_clients::KnownClients;
pub use calls::reload_reply::{ReloadError, ReloadRequest, Reloaded};
pub use calls::stats_streams::StatsStreams;
pub use connections::AdminConnections;
pub use listener::{serve, serve_local};
pub use readiness::Readiness;
pub use settings::{AdminSettings, MAX_TOKEN_SIZE, SecretSource};
pub use state::{Admin, ListenerTls};
