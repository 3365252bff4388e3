//! Opens the store: connects, prepares the tables, and starts the tasks.

use std::sync::Arc;
use std::time::Duration;

use crate::store::api::{Outbox, RevocationHook};
use crate::store::error::StoreError;
use crate::store::freshness::Freshness;
use crate::store::options::StoreOptions;
use crate::store::pool::OperationKind;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::database::Database;
use crate::store::postgres::driver::Driver;
use crate::store::postgres::enforcement::Enforcement;
use crate::store::postgres::follower::{Follower, Memory};
use crate::store::postgres::lane::Lane;
use crate::store::postgres::operation::Shared;
use crate::store::postgres::postgres_store::PostgresStore;
use crate::store::postgres::replicas::Heartbeat;
use crate::store::postgres::settings::OnStale;
use crate::store::postgres::{audit, maintenance, schema, sequences};
use crate::types::clock::UnixTime;

impl PostgresStore {
    /// Connects, for which it tries at most for `patience`, and creates or migrates the tables.
    ///
    /// `enforce` runs on the thread of the store. It must be fast, and must not own the store or wait for it.
    ///
    /// # Errors
    /// If there is no primary, if its settings do not allow safe commits, or if the tables belong to another program or
    /// to a newer version that this one cannot work beside. The database is then unchanged.
    pub fn open(
        database: Database,
        options: StoreOptions,
        enforce: RevocationHook,
        patience: Duration,
        now: UnixTime,
    ) -> Result<Self, StoreError> {
        let schema = database.settings.schema.clone();
        let replica = database.replica.clone();
        let strict = database.settings.strict;
        let serves_stale = database.settings.on_stale == OnStale::Serve;
        let freshness = Arc::new(Freshness::new(database.settings.max_staleness, serves_stale, strict));
        let connector = Connector::new(database.settings, database.tls, &database.replica);
        let driver = Driver::start(connector, patience)?;
        let outbox = Arc::new(Outbox::default());
        let life = options.longest_life;
        let family = options.longest_family;
        let channel = schema.clone();
        let prepared = driver.submit(Lane::Any, OperationKind::Upkeep, move |session| {
            let schema = schema.clone();
            async move {
                schema::prepare(&session, &schema, now).await?;
                sequences::advance(&session).await?;
                maintenance::longest_ever(&session, "longest_family", family).await?;
                maintenance::raise_longest_life(&session, life).await
            }
        });
        let longest_life = driver.wait(prepared)?;
        let memory = Memory::new(longest_life);
        let hook = memory.remembering(enforce.clone());
        let enforcement = Arc::new(Enforcement { hook, longest_life });
        let connections = driver.connections();
        let shared = Shared::new(&options, replica, connections, enforcement, freshness.clone(), outbox.clone());
        let shared = Arc::new(shared);
        let store = PostgresStore { driver, shared, outbox, freshness };
        store.driver.wait(store.run(Lane::Any, audit::Count))?;
        store.start_tasks(memory, enforce, channel);
        Ok(store)
    }

    /// Starts the heartbeat, the task that looks for pauses, and the one that reads what other gateways write.
    /// `channel`: where the database tells of new entries of the log.
    fn start_tasks(&self, memory: Memory, enforce: RevocationHook, channel: String) {
        let connections = self.driver.connections();
        let shared = self.shared.clone();
        let freshness = self.freshness.clone();
        let heartbeat = Heartbeat::new(connections.clone(), shared.clone(), freshness.clone(), self.outbox.clone());
        self.driver.spawn(heartbeat.run());
        self.driver.spawn(shared.clone().look_for_pauses());
        self.driver.spawn(Follower::new(connections, shared, memory, freshness, enforce, channel).run());
    }
}
