//! The part of a store for audit events: an outbox.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

use crate::store::api::future::StoreFuture;
use crate::tokens::audit_event::{Event, EventContext, Recorded};

/// Counters of audit events, readable without a transaction.
#[derive(Default)]
pub struct Outbox {
    /// Notified when events are durable.
    pub written: Notify,
    /// Number of undelivered events, which the store maintains. Events of an open transaction are not counted yet.
    pub waiting: AtomicU64,
    /// Number of events that were not recorded because the outbox was full.
    pub lost: AtomicU64,
}

/// Audit events that wait for their delivery.
pub trait AuditStore: Send + Sync {
    /// Records an event that no other method of the store records.
    fn record(&self, event: Event, context: EventContext) -> StoreFuture<()>;

    /// The oldest undelivered events, in order.
    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>>;

    /// Deletes the events with these sequences. Not all up to the last one: a transaction with a lower sequence may
    /// commit later, and its event was not delivered then.
    fn delivered(&self, sequences: Vec<u64>) -> StoreFuture<()>;

    fn outbox(&self) -> Arc<Outbox>;
}
