//! The keys of TLS session tickets: one for each window of time, made by the gateway that comes first.

use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows::{self, get, read_counter, read_root};
use crate::store::postgres::session::Session;
use crate::tokens::ticket_key::StoredTicketKey;

const ADD: &str = "insert into ticket_keys (period, root, sealed) values ($1, $2, $3) on conflict (period) do nothing";

/// Older keys open no ticket that is still valid. Deleted, so that no recorded ticket can ever be opened.
const FORGET: &str = "delete from ticket_keys where period < $1 - 1";

const ALL: &str = "select k.period, k.root, k.sealed from ticket_keys k where k.period >= $1 - 1
    order by k.period desc";

/// Adds a key for its window, if there is none, and reads those of this window and the one before.
pub(super) struct UseTicketKeys {
    pub(super) candidate: StoredTicketKey,
}

impl Operation for UseTicketKeys {
    type Output = Vec<StoredTicketKey>;

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Vec<StoredTicketKey>, QueryError> {
        let StoredTicketKey { period, root, sealed } = &self.candidate;
        let period = rows::counter(*period)?;
        let read = async || session.query(ALL, &[&period]).await;
        let mut found = read().await?;
        let newest = found.first().map(|row| get::<i64>(row, "period")).transpose()?;
        if newest < Some(period) {
            session.execute(ADD, &[&period, &i32::from(*root), sealed]).await?;
            session.execute(FORGET, &[&period]).await?;
            // What another gateway has added meanwhile counts.
            found = read().await?;
        }
        let key = |row| -> Result<_, StoreError> {
            let period = read_counter(row, "period")?;
            Ok(StoredTicketKey { period, root: read_root(row, "root")?, sealed: get(row, "sealed")? })
        };
        Ok(found.iter().map(key).collect::<Result<_, _>>()?)
    }
}
