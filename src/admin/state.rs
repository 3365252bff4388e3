//! The state behind the calls of the admin API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use arc_swap::ArcSwap;
use serde_json::Value as Json;

use super::access::guess::WrongTokens;
use super::access::operators::Operators;
use super::access::sessions::Sessions;
use super::calls::explainer::Explain;
use super::calls::known_clients::KnownClients;
use super::calls::reload_reply::ReloadRequest;
use super::calls::stats_streams::StatsStreams;
use super::readiness::Readiness;
use crate::auth::provider::Providers;
use crate::auth::registered_clients::ClientKeys;
use crate::broker::Broker;
use crate::protocols::tls::ServerTls;
use crate::telemetry::metrics::{Metrics, WorkerMetrics};
use crate::telemetry::recent_rejections::RecentRejections;
use crate::telemetry::snapshots::Snapshots;
use crate::types::clock::Clock;
use crate::types::ids::RequestIds;
use crate::upstream::Upstream;

pub struct Admin {
    pub broker: Arc<Broker>,
    pub providers: Arc<Providers>,
    pub client_keys: Arc<ClientKeys>,
    /// The upstreams of the active configuration.
    pub upstreams: Arc<ArcSwap<Vec<Arc<Upstream>>>>,
    pub metrics: Arc<Metrics>,
    pub rejections: Arc<RecentRejections>,
    pub explainer: Box<dyn Explain>,
    pub snapshots: Arc<Snapshots>,
    pub stats_streams: StatsStreams,
    pub listeners: Vec<ListenerTls>,
    /// The clients that the gateway knows without its store.
    pub known_clients: Box<dyn Fn() -> KnownClients + Send + Sync>,
    /// Every key in force, with its origin.
    pub configuration: Box<dyn Fn() -> Json + Send + Sync>,
    pub clock: Arc<dyn Clock>,
    pub operators: Operators,
    pub sessions: Arc<Sessions>,
    pub wrong_tokens: WrongTokens,
    pub hosts: Vec<String>,
    /// `admin.page`
    pub page: bool,
    pub readiness: Arc<Readiness>,
    /// The counters of the thread that serves the admin listener.
    pub counters: Arc<WorkerMetrics>,
    /// True from the end of the start until the gateway drains.
    pub serving: Arc<AtomicBool>,
    /// Reload requests. `None` for a gateway that was not started from a file.
    pub reloads: Option<Sender<ReloadRequest>>,
    pub request_ids: RequestIds,
}

/// A listener and its active certificates.
#[derive(Clone)]
pub struct ListenerTls {
    pub address: SocketAddr,
    pub is_admin: bool,
    /// `None` for cleartext.
    pub tls: Option<Arc<ArcSwap<ServerTls>>>,
}
