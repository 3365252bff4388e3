//! The admin listener: health, readiness, metrics, and the admin API for tokens, keys, upstreams and reloads.
//!
//! It listens on a Unix socket for the command line, and on a TCP address for probes, scrapers and backends. It has its
//! own thread, so that it responds while the workers are busy.

mod body;
mod certificates;
mod connections;
mod explain;
mod explainer;
mod guess;
mod host;
mod issuers;
mod keys;
mod listener;
mod operators;
mod page;
mod probes;
mod query;
mod readiness;
mod rejections;
mod reload;
mod reload_reply;
mod revocations;
mod router;
mod session_calls;
mod sessions;
mod settings;
mod slow_readers;
mod state;
mod stats;
mod stats_streams;
mod tokens;
mod upstreams;

pub use connections::AdminConnections;
pub use explainer::{Asked, Explain, Explaining};
pub use guess::WrongTokens;
pub use listener::{serve, serve_local};
pub use operators::{Access, Operator, Operators, Role};
pub use readiness::StoreReadiness;
pub use reload_reply::{ReloadError, ReloadReply, Reloaded};
pub use sessions::Sessions;
pub use settings::{MAX_TOKEN_SIZE, SecretSource, Settings};
pub use state::{Admin, ListenerTls};
pub use stats_streams::StatsStreams;
