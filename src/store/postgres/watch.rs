//! Looks whether one of several hosts was promoted, over a connection of its own to each of them.
//!
//! Without this, a gateway would stay at the server that was the primary before, as long as that one responds. It would
//! not hear of what other gateways revoke at the new primary. `connect` has asked all hosts before the store opened.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::store::postgres::connections::Connections;
use crate::store::postgres::error::{QueryError, silent};
use crate::store::postgres::primary::Answer;
use crate::store::postgres::session::Session;
use crate::store::postgres::session_check::timeline;

/// The longest time from one look to the next. Several looks fit into `store.max_staleness`.
const INTERVAL: Duration = Duration::from_secs(5);

/// The task that looks at one host. Runs on the thread of the store.
pub(super) struct Watch {
    connections: Connections,
    /// The index of the host.
    host: usize,
    session: Option<Session>,
}

impl Watch {
    /// One for each of several hosts. None if there is one host.
    pub(super) fn of_hosts(connections: &Connections) -> impl Iterator<Item = Watch> {
        let hosts = connections.connector().settings().target.hosts.len();
        let watched = if hosts == 1 { 0..0 } else { 0..hosts };
        watched.map(|host| Watch { connections: connections.clone(), host, session: None })
    }

    /// The first look is made at once: the one before the store opened may be of an earlier step of the start.
    pub(super) async fn run(mut self) {
        let interval = INTERVAL.min(self.connections.connector().settings().max_staleness / 4);
        loop {
            self.look().await;
            sleep(interval).await;
        }
    }

    /// A host that does not respond was not promoted, as far as this gateway can know.
    async fn look(&mut self) {
        let limit = self.connections.connector().settings().target.connect_timeout;
        let answer = timeout(limit, self.ask()).await.unwrap_or_else(|_| Err(QueryError::Lost(silent(limit))));
        self.connections.connector().note(self.host, &answer);
        match answer {
            Ok(Some(timeline)) => self.connections.found(self.host, timeline),
            Ok(None) | Err(QueryError::Rejected(_) | QueryError::Conflict(_)) => {}
            Err(QueryError::Lost(_) | QueryError::NotPrimary(_)) => {
                if let Some(session) = self.session.take() {
                    session.close();
                }
            }
        }
    }

    async fn ask(&mut self) -> Answer {
        let connector = self.connections.connector();
        let session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => {
                let opened = connector.open(self.host).await;
                let (session, driven) = opened.map_err(|failed| QueryError::Lost(failed.error))?;
                tokio::spawn(driven);
                session
            }
        };
        let session = self.session.insert(session);
        timeline(session, connector.settings().target.connect_timeout).await
    }
}
