//! Clients that send requests without a pause, each on its own connection, and count the responses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;

/// Clients under load, until [`LoadGenerator::ends`].
pub struct LoadGenerator {
    clients: JoinSet<()>,
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    answers: Arc<Mutex<BTreeMap<u16, usize>>>,
}

impl LoadGenerator {
    pub fn start(gateway: SocketAddr, clients: usize) -> LoadGenerator {
        let mut load = LoadGenerator {
            clients: JoinSet::new(),
            stop: Arc::default(),
            requests: Arc::default(),
            answers: Arc::default(),
        };
        for _ in 0..clients {
            let (stop, requests, answers) = (load.stop.clone(), load.requests.clone(), load.answers.clone());
            load.clients.spawn(async move {
                let mut connection = HttpConnection::http1(gateway).await;
                while !stop.load(Ordering::SeqCst) {
                    let answer = connection.send(Request::get("/").body(connection::empty()).expect("a request")).await;
                    let mut status = answer.status().as_u16();
                    if answer.into_body().collect().await.is_err() {
                        // A truncated response is a failure.
                        (status, connection) = (0, HttpConnection::http1(gateway).await);
                    }
                    *answers.lock().expect("unpoisoned").entry(status).or_default() += 1;
                    requests.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        load
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Waits for this many more responses. Each single one must arrive within the timeout, so a slow machine does not
    /// fail here.
    pub async fn goes_on(&self, requests: usize) {
        let mut done = self.requests();
        let enough = done + requests;
        while done < enough {
            eventually("the clients get responses", || self.requests() > done).await;
            done = self.requests();
        }
    }

    /// Stops the clients. Returns how often each status was received, with 0 for truncated responses.
    pub async fn ends(mut self) -> BTreeMap<u16, usize> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(client) = self.clients.join_next().await {
            client.expect("no panic");
        }
        self.answers.lock().expect("unpoisoned").clone()
    }
}
