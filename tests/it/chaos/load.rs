//! The load of a case: clients that refresh, operators that revoke, and clients that probe. Each records its history.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tokio::runtime::{self, Handle};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep};

use super::checkers::{Outcome, Probe, Refresh, Revocation, Span};
use super::cluster::{Cluster, Target};
use crate::support::TokenPair;

/// Histories of all tasks.
#[derive(Default)]
pub(super) struct History {
    pub(super) refreshes: Mutex<Vec<Refresh>>,
    pub(super) revocations: Mutex<Vec<Revocation>>,
    pub(super) probes: Mutex<Vec<Probe>>,
}

/// A runtime on a thread of its own, so that a test can block while it kills and starts processes.
pub(super) struct Background(Handle);

impl Background {
    pub(super) fn start() -> Background {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Background(handle)
    }

    /// Runs a future there, and waits for it.
    pub(super) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (send, receive) = sync_channel(1);
        self.0.spawn(async move { send.send(future.await) });
        receive.recv().expect("no panic")
    }
}

/// The tasks, until [`Load::stop`].
pub(super) struct Load {
    background: Background,
    history: Arc<History>,
    stopping: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    /// Access tokens of another issuer: the `jti` and the token.
    tokens: Arc<Vec<(String, String)>>,
    targets: Vec<Target>,
}

/// How much load, besides the probes.
#[derive(Clone, Copy)]
pub(super) struct Volume {
    pub(super) families: usize,
    /// Tokens to revoke.
    pub(super) tokens: usize,
    /// Revocations in flight at the same time.
    pub(super) revokers: usize,
}

impl Load {
    pub(super) fn start(cluster: &Cluster, volume: Volume) -> Load {
        let tokens = (0..volume.tokens).map(|number| cluster.foreign_token(number)).collect();
        let mut load = Load {
            background: Background::start(),
            history: Arc::default(),
            stopping: Arc::default(),
            tasks: Vec::new(),
            tokens: Arc::new(tokens),
            targets: cluster.replicas.iter().map(|replica| replica.target()).collect(),
        };
        for number in 0..volume.families {
            let target = load.targets[number % load.targets.len()].clone();
            let pair = load.background.run(async move { target.login(&format!("subject-{number}")).await });
            load.spawn(refresh(load.task(number), pair.expect("the replica works")));
        }
        for first in 0..volume.revokers {
            load.spawn(revoke(load.task(first), volume.revokers));
        }
        for replica in 0..load.targets.len() {
            load.spawn(probe(load.task(replica), replica));
        }
        load
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(self.background.0.spawn(task));
    }

    fn task(&self, number: usize) -> Task {
        let (history, stopping) = (self.history.clone(), self.stopping.clone());
        Task { history, stopping, tokens: self.tokens.clone(), targets: self.targets.clone(), number }
    }

    /// How many revocations were acknowledged.
    pub(super) fn revoked(&self) -> usize {
        lock(&self.history.revocations).len()
    }

    /// Waits until every token was revoked.
    pub(super) fn wait_until_all_are_revoked(&self, patience: Duration) {
        self.wait_until_revoked(self.tokens.len(), patience);
    }

    /// Waits until this number of tokens was revoked. Fails after `patience`.
    pub(super) fn wait_until_revoked(&self, count: usize, patience: Duration) {
        let began = Instant::now();
        while self.revoked() < count {
            assert!(began.elapsed() < patience, "{} of {count} were revoked in {patience:?}", self.revoked());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops all tasks after their last response.
    pub(super) fn stop(&mut self) -> Arc<History> {
        self.stopping.store(true, Ordering::Relaxed);
        for task in self.tasks.drain(..) {
            self.background.run(task).expect("no panic");
        }
        self.history.clone()
    }

    /// Sends each revoked token to each replica once. Returns how many were not rejected.
    pub(super) fn accepted_at_the_end(&self) -> usize {
        let revoked: Vec<usize> = lock(&self.history.revocations).iter().map(|revocation| revocation.token).collect();
        let (targets, tokens) = (self.targets.clone(), self.tokens.clone());
        self.background.run(async move {
            let mut checks = JoinSet::new();
            for target in targets {
                for part in revoked.chunks(revoked.len().div_ceil(8).max(1)) {
                    checks.spawn(count_accepted(target.clone(), part.to_vec(), tokens.clone()));
                }
            }
            checks.join_all().await.into_iter().sum()
        })
    }
}

async fn count_accepted(target: Target, revoked: Vec<usize>, tokens: Arc<Vec<(String, String)>>) -> usize {
    let mut accepted = 0;
    for token in revoked {
        accepted += usize::from(target.get(&tokens[token].1).await != Some(StatusCode::UNAUTHORIZED));
    }
    accepted
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Task {
    history: Arc<History>,
    stopping: Arc<AtomicBool>,
    tokens: Arc<Vec<(String, String)>>,
    targets: Vec<Target>,
    number: usize,
}

impl Task {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// A client with two tabs: both present the current token, to two replicas at the same time. It goes on with the child,
/// and repeats the token as long as it has none.
async fn refresh(task: Task, mut pair: TokenPair) {
    let mut parent = 1;
    let mut turn = task.number;
    while !task.is_stopping() {
        turn += 1;
        let [one, other] = [turn, turn + 1].map(|turn| &task.targets[turn % task.targets.len()]);
        let responses = tokio::join!(refresh_once(one, &pair), refresh_once(other, &pair));
        let mut child = None;
        for (span, outcome, got) in [responses.0, responses.1] {
            child = got.or(child);
            lock(&task.history.refreshes).push(Refresh { family: pair.token_id.clone(), parent, span, outcome });
        }
        match child {
            Some(next) => (pair, parent) = (next, parent + 1),
            None => sleep(Duration::from_millis(100)).await,
        }
        // About ten refreshes per second and family.
        sleep(Duration::from_millis(100)).await;
    }
}

async fn refresh_once(target: &Target, pair: &TokenPair) -> (Span, Outcome, Option<TokenPair>) {
    let began = Instant::now();
    let response = target.refresh(pair).await;
    let span = Span { began, ended: Instant::now() };
    match response {
        Some((StatusCode::OK, body)) => {
            let child = TokenPair::from_json(&body);
            (span, Outcome::Done(child.refresh.clone()), Some(child))
        }
        None | Some((StatusCode::SERVICE_UNAVAILABLE, _)) => (span, Outcome::Unknown, None),
        Some((status, _)) => (span, Outcome::Rejected(status.as_u16()), None),
    }
}

/// Revokes every `step`th token, each at another replica. Repeats what was not acknowledged.
async fn revoke(task: Task, step: usize) {
    for token in (task.number..task.tokens.len()).step_by(step) {
        let mut attempt = token;
        loop {
            if task.is_stopping() {
                return;
            }
            let replica = attempt % task.targets.len();
            attempt += 1;
            let what = json!({ "jti": task.tokens[token].0, "issuer": crate::support::tokens::EXTERNAL_ISSUER });
            if task.targets[replica].revoke(what).await == Some(StatusCode::OK) {
                let acknowledged = Instant::now();
                lock(&task.history.revocations).push(Revocation { token, replica, acknowledged });
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Sends a token of those that were revoked last to one replica, fifty times per second.
async fn probe(task: Task, replica: usize) {
    let mut ticks = interval(Duration::from_millis(20));
    let mut turn = 0;
    while !task.is_stopping() {
        ticks.tick().await;
        turn += 1;
        let newest = lock(&task.history.revocations).iter().rev().nth(turn * 7 % 10).map(|revocation| revocation.token);
        let token = newest.unwrap_or(turn % task.tokens.len().max(1));
        let Some((_, text)) = task.tokens.get(token) else { continue };
        let began = Instant::now();
        let status = task.targets[replica].get(text).await;
        let span = Span { began, ended: Instant::now() };
        // A replica that is away, or that does not know, has accepted nothing.
        let accepted = status == Some(StatusCode::OK);
        lock(&task.history.probes).push(Probe { token, replica, span, accepted });
    }
}
