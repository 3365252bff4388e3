//! The check that the database can commit, for a barrier and for readiness probes.

use std::time::Instant;

use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::session::Session;

/// Writes, because reads still work on a full disk and on a standby. In the row of this gateway, so that the checks of
/// several do not wait for each other. It is no heartbeat: no other column may change.
const CHECK: &str = "update replicas set version = version where id = $1";
/// Before the first heartbeat, this gateway has no row. A statement of its own, because it waits for locks of `meta`.
const CHECK_UNLISTED: &str = "update meta set value = value + 1 where name = 'checks'";

/// Writes half a megabyte to a temporary file, which needs no right, and which nothing keeps. [`CHECK`] finds room in a
/// page that exists already.
const USE_SPACE: &str = "set local work_mem = '64kB'; select count(*) from generate_series(1, 20000)";

pub(super) struct Check;

impl Operation for Check {
    type Output = ();

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        if session.execute(CHECK, &[&shared.replica.as_str()]).await? == 1 {
            return Ok(());
        }
        match session.execute(CHECK_UNLISTED, &[]).await? {
            1 => Ok(()),
            _ => Err(StoreError::new("the table meta lacks a row; restore a backup").into()),
        }
    }
}

/// As [`Check`]. After a failure of the disk, it also uses new space.
pub(super) struct Probe {
    pub(super) connections: Connections,
}

impl Operation for Probe {
    type Output = ();

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        let began = Instant::now();
        let failures = self.connections.disk_failures();
        Check.run(shared, session).await?;
        if failures.has_failed() {
            session.batch(USE_SPACE).await?;
            failures.end(began);
        }
        Ok(())
    }
}
