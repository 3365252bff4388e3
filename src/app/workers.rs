//! The worker threads, and what their connections share.

use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

use super::error::StartError;
use super::shared_state::SharedState;
use crate::auth::signature_queue::SignatureQueue;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::gateway::streams::Streams;
use crate::gateway::worker::Worker;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::penalty::PenaltyBox;
use crate::limits::per_address::PerAddressLimit;
use crate::server::{self, Listener, RetryDelay, Shared};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::recent_rejections::RecentRejections;
use crate::telemetry::spans::Tracer;
use crate::types::ids::RequestIds;
use crate::types::per_worker::{PaddedArc, PerWorker};

/// What the connections of all workers share.
pub(super) fn shared(config: &Config, gateway: Gateway, draining: watch::Receiver<bool>) -> Shared {
    let settings = config.connections.clone();
    Shared {
        gateway: ArcSwap::from_pointee(PerWorker::new(PaddedArc::new(gateway), config.workers)),
        connection_slots: Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS))),
        per_address: Arc::new(PerAddressLimit::new(settings.connections_per_address)),
        idle: Arc::default(),
        penalties: PenaltyBox::new(settings.penalty),
        retry_delay: RetryDelay::new(&config.connections),
        settings: ArcSwap::from_pointee(settings),
        draining,
    }
}

/// What every worker is built from.
pub(super) struct Workers<'a> {
    pub(super) config: &'a Config,
    pub(super) state: &'a SharedState,
    pub(super) metrics: &'a Metrics,
    pub(super) log: Option<&'a AccessLog>,
    pub(super) tracer: Option<&'a Arc<Tracer>>,
    pub(super) rejections: &'a RecentRejections,
    pub(super) shared: &'a Arc<Shared>,
}

impl Workers<'_> {
    /// Starts a worker for each element of `listeners`.
    pub(super) fn start(&self, listeners: Vec<Vec<Listener>>) -> Result<Vec<JoinHandle<()>>, StartError> {
        let start = |(number, listeners)| {
            let worker = Arc::new(self.worker(number));
            let thread = server::spawn(worker, listeners, self.shared.clone());
            thread.map_err(|source| StartError::Thread { name: format!("worker {number}"), source })
        };
        listeners.into_iter().enumerate().map(start).collect()
    }

    fn worker(&self, number: usize) -> Worker {
        let connections = &self.config.connections;
        let checks = self.state.auth.token_checks(self.state.clock.clone());
        Worker {
            number,
            request_ids: RequestIds::new(),
            metrics: self.metrics.worker(number),
            streams: Streams::new(checks, self.metrics.worker(number)),
            bad_signatures: self.state.bad_signatures.clone(),
            signature_queue: SignatureQueue::new(),
            log: self.log.map(|log| log.buffer(number)),
            tracer: self.tracer.map(Tracer::worker),
            rejections: self.rejections.worker(number),
            concurrency: ConcurrencyLimit::new(
                connections.concurrent_requests,
                connections.reserve_percent,
                self.config.workers,
            ),
        }
    }
}
