//! What runs beside the operations.

use std::sync::Arc;

use crate::store::api::{Outbox, RevocationHook};
use crate::store::freshness::Freshness;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::driver::Driver;
use crate::store::postgres::follower::{Follower, Memory};
use crate::store::postgres::operation::Shared;
use crate::store::postgres::replicas::Heartbeat;

pub(super) struct Tasks {
    pub(super) connections: Connections,
    pub(super) shared: Arc<Shared>,
    pub(super) freshness: Arc<Freshness>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) memory: Memory,
    pub(super) enforce: RevocationHook,
    /// Where the database tells of new entries of the log.
    pub(super) channel: String,
}

impl Tasks {
    /// Starts the heartbeat, the task that looks for pauses, and the one that reads what other gateways write.
    pub(super) fn spawn(self, driver: &Driver) {
        let Tasks { connections, shared, freshness, outbox, memory, enforce, channel } = self;
        let heartbeat = Heartbeat::new(connections.clone(), shared.clone(), freshness.clone(), outbox);
        driver.spawn(heartbeat.run());
        driver.spawn(shared.clone().look_for_pauses());
        driver.spawn(Follower::new(connections, shared, memory, freshness, enforce, channel).run());
    }
}
