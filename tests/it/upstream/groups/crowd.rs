//! Clients that ask without a pause, each over a connection of its own, and count what they are answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::support::session::{self, Session};

pub struct PerAddressLimit {
    clients: JoinSet<()>,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    answers: Arc<Mutex<BTreeMap<u16, usize>>>,
}

impl PerAddressLimit {
    pub fn ask(gateway: SocketAddr, clients: usize) -> PerAddressLimit {
        let mut crowd = PerAddressLimit {
            clients: JoinSet::new(),
            stop: Arc::default(),
            asked: Arc::default(),
            answers: Arc::default(),
        };
        for _ in 0..clients {
            let (stop, asked, answers) = (crowd.stop.clone(), crowd.asked.clone(), crowd.answers.clone());
            crowd.clients.spawn(async move {
                let mut session = Session::http1(gateway).await;
                while !stop.load(Ordering::SeqCst) {
                    let answer = session.send(Request::get("/").body(session::empty()).expect("a request")).await;
                    let mut status = answer.status().as_u16();
                    if answer.into_body().collect().await.is_err() {
                        // No client is served by half an answer.
                        (status, session) = (0, Session::http1(gateway).await);
                    }
                    *answers.lock().expect("unpoisoned").entry(status).or_default() += 1;
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        crowd
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until so many more were answered, however slow this machine is, as long as it goes on.
    pub async fn goes_on(&self, requests: usize) {
        let mut asked = self.asked();
        let enough = asked + requests;
        while asked < enough {
            session::eventually("the crowd goes on", || self.asked() > asked).await;
            asked = self.asked();
        }
    }

    /// How often each status was answered; 0 for answers that broke off.
    pub async fn ends(mut self) -> BTreeMap<u16, usize> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(client) = self.clients.join_next().await {
            client.expect("no panic");
        }
        self.answers.lock().expect("unpoisoned").clone()
    }
}
