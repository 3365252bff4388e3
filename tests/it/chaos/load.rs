//! The load of a case: clients that refresh, operators that revoke, and clients that probe. Each records its history.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::runtime::{self, Handle};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::checkers::{Outcome, Probe, Refresh, Revocation, Span, Use, Watermark};
use super::cluster::Cluster;
use super::races::{self, LoggedOut, Sessions};
use super::revocations::{self, Answers};
use super::story::Story;
use super::target::Target;
use crate::support::TokenPair;
use crate::support::random::Random;

/// Histories of all tasks.
#[derive(Default)]
pub(super) struct History {
    pub(super) refreshes: Mutex<Vec<Refresh>>,
    pub(super) revocations: Mutex<Vec<Revocation>>,
    pub(super) probes: Mutex<Vec<Probe>>,
    pub(super) watermarks: Mutex<Vec<Watermark>>,
    pub(super) logged_out: Mutex<Vec<LoggedOut>>,
    pub(super) uses: Mutex<Vec<Use>>,
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
        self.begin(future).recv().expect("no panic")
    }

    /// Runs a future there, and does not wait for it.
    pub(super) fn begin<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Receiver<T> {
        let (send, receive) = sync_channel(1);
        self.0.spawn(async move { send.send(future.await) });
        receive
    }
}

/// The tasks, until [`Load::stop`].
pub(super) struct Load {
    background: Background,
    history: Arc<History>,
    stopping: Arc<AtomicBool>,
    /// Gets no revocations; [`EACH`]: every replica gets them.
    spared: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
    /// Access tokens of another issuer: the `jti` and the token.
    tokens: Arc<Vec<(String, String)>>,
    targets: Arc<Vec<Target>>,
    random: Random,
    /// Sessions for the requests right before a fault.
    spare: Vec<(String, TokenPair, Instant)>,
}

/// How much load, besides the probes.
#[derive(Clone, Copy)]
pub(super) struct Volume {
    pub(super) families: usize,
    /// Tokens to revoke.
    pub(super) tokens: usize,
    /// Revocations in flight at the same time.
    pub(super) revokers: usize,
    /// Longest pause of a revoker after a revocation, in milliseconds.
    pub(super) pause: u64,
    /// Subjects that are logged out everywhere while they refresh, at the same time.
    pub(super) races: usize,
}

/// No replica is spared.
const EACH: usize = usize::MAX;

/// Number of sessions for the requests right before a fault.
const SPARE: usize = 6;

impl Load {
    pub(super) fn start(cluster: &Cluster, volume: Volume, story: &Story) -> Load {
        let tokens = (0..volume.tokens).map(|number| cluster.foreign_token(number)).collect();
        let mut load = Load {
            background: Background::start(),
            history: Arc::default(),
            stopping: Arc::default(),
            spared: Arc::new(AtomicUsize::new(EACH)),
            tasks: Vec::new(),
            tokens: Arc::new(tokens),
            targets: Arc::new(cluster.replicas.iter().map(|replica| replica.target()).collect()),
            random: story.part("load"),
            spare: Vec::new(),
        };
        for number in 0..volume.families {
            let pair = load.login(number, format!("{HONEST}{number}"));
            load.spawn(refresh(load.task("refresh", number), pair));
        }
        for number in 0..SPARE {
            let subject = format!("{HONEST}spare-{number}");
            let pair = load.login(number, subject.clone());
            load.spare.push((subject, pair, Instant::now()));
        }
        for first in 0..volume.revokers {
            load.spawn(revocations::revoke(load.task("revoke", first), volume.revokers, volume.pause));
        }
        for replica in 0..load.targets.len() {
            load.spawn(revocations::probe(load.task("probe", replica), replica));
            load.spawn(races::use_old_tokens(load.task("use", replica), replica));
        }
        for number in 0..volume.races {
            load.spawn(races::race(load.task("race", number)));
        }
        load
    }

    fn login(&self, number: usize, subject: String) -> TokenPair {
        let target = self.targets[number % self.targets.len()].clone();
        self.background.run(async move { target.login(&subject).await }).expect("the replica works")
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(self.background.0.spawn(task));
    }

    fn task(&self, name: &str, number: usize) -> Task {
        Task {
            history: self.history.clone(),
            stopping: self.stopping.clone(),
            spared: self.spared.clone(),
            tokens: self.tokens.clone(),
            targets: self.targets.clone(),
            number,
            random: self.random.part(&format!("{name} {number}")),
        }
    }

    /// Sends one request that the story chooses, and does not wait for it: the fault comes next.
    pub(super) fn send_one(&mut self, story: &mut Story) {
        let replica = story.random().below(self.targets.len());
        let mut task = self.task("one", replica);
        let what = match (story.random().below(3), self.spare.pop()) {
            (0, Some((_, pair, _))) => {
                self.spawn(async move {
                    let mut parent = 1;
                    refresh_until_done(&mut task, replica, pair, &mut parent).await;
                });
                "a refresh"
            }
            (1, Some((subject, pair, login))) => {
                let sessions = Sessions::new(subject, login, &pair);
                self.spawn(async move { races::log_out(&mut task, replica, sessions).await });
                "\"log out everywhere\""
            }
            _ => {
                let target = self.targets[replica].clone();
                self.spawn(async move { drop(target.login(&format!("{HONEST}new")).await) });
                "a login"
            }
        };
        story.tell(format!("{what} is sent through replica {replica}"));
        let pause = story.random().millis(5);
        thread::sleep(pause);
    }

    /// Logs a subject in through this replica.
    pub(super) fn log_in(&self, replica: usize, subject: &str) -> (Sessions, TokenPair) {
        let pair = self.login(replica, subject.to_owned());
        (Sessions::new(subject.to_owned(), Instant::now(), &pair), pair)
    }

    /// Logs a subject out everywhere, through this replica first. Returns when that was acknowledged.
    pub(super) fn log_out(&self, replica: usize, sessions: Sessions) {
        let mut task = self.task("log out", replica);
        self.run(async move { races::log_out(&mut task, replica, sessions).await });
    }

    /// Sends "log out everywhere" through this replica, and does not wait for it.
    pub(super) fn start_log_out(&self, replica: usize, subject: &str) -> JoinHandle<Option<Instant>> {
        let (mut task, subject) = (self.task("log out", replica), subject.to_owned());
        self.background.0.spawn(async move { races::log_out_only(&mut task, replica, &subject).await })
    }

    /// How many revocations were acknowledged.
    pub(super) fn revoked(&self) -> usize {
        lock(&self.history.revocations).len()
    }

    /// Revokes at the other replicas only, so that a replica that does not respond delays no revocation. `None`: at
    /// every replica again.
    pub(super) fn spare(&self, replica: Option<usize>) {
        self.spared.store(replica.unwrap_or(EACH), Ordering::Relaxed);
    }

    /// Sends tokens that were revoked after the first `before` ones, and at least `patience` ago, until the replica has
    /// given this number of responses.
    pub(super) fn probe_missed(&self, replica: usize, before: usize, patience: Duration, count: usize) -> Answers {
        let task = self.task("missed", replica);
        self.run(async move { revocations::probe_missed(task, replica, before, patience, count).await })
    }

    /// Sends these tokens to this replica, and does not wait for the responses.
    pub(super) fn start_probes(&mut self, replica: usize, tokens: &[usize]) {
        for token in tokens.iter().copied() {
            let task = self.task("late probe", replica);
            self.spawn(async move {
                let _ = revocations::probe_once(&task, replica, token).await;
            });
        }
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    pub(super) fn target(&self, replica: usize) -> Target {
        self.targets[replica].clone()
    }

    /// Runs a future beside the load, and waits for it.
    pub(super) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        self.background.run(future)
    }

    /// Waits until every token was revoked.
    pub(super) fn wait_until_all_are_revoked(&self, patience: Duration) {
        self.wait_until_revoked(self.tokens.len(), patience);
    }

    /// How many tokens can be revoked.
    pub(super) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Waits until this number of tokens was revoked. Fails after `patience`, and 10 ms more for each of them.
    pub(super) fn wait_until_revoked(&self, count: usize, patience: Duration) {
        let began = Instant::now();
        let patience = patience + Duration::from_millis(10) * u32::try_from(count).expect("a number of tokens");
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

    /// Sends each revoked token to each replica, until it is rejected or for `patience`. Returns how many were not
    /// rejected.
    pub(super) fn accepted_at_the_end(&self, patience: Duration) -> usize {
        let revoked: Vec<usize> = lock(&self.history.revocations).iter().map(|revocation| revocation.token).collect();
        let mut checks = JoinSet::new();
        for replica in 0..self.targets.len() {
            for part in revoked.chunks(revoked.len().div_ceil(8).max(1)) {
                let check = revocations::count_accepted(self.task("end", replica), part.to_vec(), patience);
                checks.spawn_on(check, &self.background.0);
            }
        }
        self.background.run(async move { checks.join_all().await.into_iter().sum() })
    }

    /// Sends each token of each subject that was logged out to each replica, until it is rejected or for `patience`.
    pub(super) fn use_old_tokens_at_the_end(&self, patience: Duration) {
        let (history, targets) = (self.history.clone(), self.targets.clone());
        self.background.run(async move { races::use_all(&history, &targets, patience).await });
    }
}

/// The subjects of honest clients begin with this.
pub(super) const HONEST: &str = "subject-";

pub(super) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Task {
    pub(super) history: Arc<History>,
    stopping: Arc<AtomicBool>,
    spared: Arc<AtomicUsize>,
    pub(super) tokens: Arc<Vec<(String, String)>>,
    pub(super) targets: Arc<Vec<Target>>,
    pub(super) number: usize,
    pub(super) random: Random,
}

impl Task {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The number of a replica.
    pub(super) fn any_replica(&mut self) -> usize {
        self.random.below(self.targets.len())
    }

    /// The number of a replica that gets revocations.
    pub(super) fn replica_to_revoke_at(&mut self) -> usize {
        let spared = self.spared.load(Ordering::Relaxed);
        let chosen = self.any_replica();
        if chosen == spared { (chosen + 1) % self.targets.len() } else { chosen }
    }
}

/// A client with two tabs: both present the current token, to two replicas at the same time. It goes on with the child,
/// and repeats the token as long as it has none.
async fn refresh(mut task: Task, mut pair: TokenPair) {
    let mut parent = 1;
    while !task.is_stopping() {
        let replica = task.any_replica();
        pair = refresh_until_done(&mut task, replica, pair, &mut parent).await;
        // About ten refreshes per second and family.
        sleep(task.random.millis(200)).await;
    }
}

/// Returns the child, or the same pair if the load ends before there is one.
async fn refresh_until_done(task: &mut Task, first: usize, pair: TokenPair, parent: &mut u64) -> TokenPair {
    let mut replica = first;
    loop {
        let [one, other] = [replica, replica + 1].map(|turn| task.targets[turn % task.targets.len()].clone());
        let responses = tokio::join!(refresh_once(&one, &pair), refresh_once(&other, &pair));
        let mut child = None;
        for (span, outcome, got) in [responses.0, responses.1] {
            child = got.or(child);
            let refresh = Refresh { family: pair.token_id.clone(), parent: *parent, span, outcome };
            lock(&task.history.refreshes).push(refresh);
        }
        if let Some(next) = child {
            *parent += 1;
            return next;
        }
        if task.is_stopping() {
            return pair;
        }
        sleep(Duration::from_millis(100)).await;
        replica = task.any_replica();
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
