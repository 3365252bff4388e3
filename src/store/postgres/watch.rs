//! Looks whether one of several hosts was promoted, over a connection of its own to each of them.
//!
//! Without this, a gateway would stay at the server that was the primary before, as long as that one responds. It would
//! not hear of what other gateways revoke at the new primary.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::store::postgres::connections::Connections;
use crate::store::postgres::error::ConnectError;
use crate::store::postgres::session::Session;
use crate::store::postgres::session_check::timeline;
use crate::store::postgres::timeline::Timeline;

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
    /// One for each of several hosts, after a first look. None if there is one host.
    pub(super) async fn begin(connections: &Connections) -> Vec<Watch> {
        let hosts = connections.connector().settings().target.hosts.len();
        if hosts == 1 {
            return Vec::new();
        }
        let mut looks = JoinSet::new();
        for host in 0..hosts {
            let mut watch = Watch { connections: connections.clone(), host, session: None };
            looks.spawn(async move {
                watch.look().await;
                watch
            });
        }
        looks.join_all().await
    }

    pub(super) async fn run(mut self) {
        let interval = INTERVAL.min(self.connections.connector().settings().max_staleness / 4);
        loop {
            sleep(interval).await;
            self.look().await;
        }
    }

    /// A host that does not respond was not promoted, as far as this gateway can know.
    async fn look(&mut self) {
        let limit = self.connections.connector().settings().target.connect_timeout;
        match timeout(limit, self.ask()).await {
            Ok(Ok(Some(timeline))) => self.connections.found(self.host, timeline),
            Ok(Ok(None)) => {}
            Ok(Err(_)) | Err(_) => {
                if let Some(session) = self.session.take() {
                    session.close();
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<Option<Timeline>, ConnectError> {
        let connector = self.connections.connector();
        let session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => {
                let (session, driven) = connector.open(self.host).await?;
                tokio::spawn(driven);
                session
            }
        };
        let session = self.session.insert(session);
        timeline(session, connector.settings().target.connect_timeout).await
    }
}
