//! The control thread: the admin listener, and regular work beside requests.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::acme_tasks::AcmeTasks;
use super::error::StartError;
use super::reload::LiveConfig;
use super::shared_state::SharedState;
use super::sockets::AdminSocket;
use super::stale_requests;
use super::thread;
use crate::admin::{self, Admin, AdminConnections};
use crate::auth::stream_reads::StreamReads;
use crate::protocols::socket;
use crate::types::clock::every;
use crate::types::reject::with_causes;

/// How often to write to the store which refreshes were confirmed by use of their new tokens.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(500);
/// How often to look for logins that have ended: the gateway then revokes their tokens there.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// How often to look for refreshes at providers that a killed process has left.
const RESUME_INTERVAL: Duration = Duration::from_secs(2);
/// How long a drain waits for sign-ins and refreshes at providers, and a take-over for refreshes. Most providers
/// respond in less than a second.
pub(super) const REFRESH_GRACE: Duration = Duration::from_secs(10);
/// How often to check whether a signing key starts to sign, or is no longer accepted.
const KEY_INTERVAL: Duration = Duration::from_secs(1);
/// How often to look what open streams need: API keys and sessions to be read again, opaque tokens to be asked about.
const STREAM_INTERVAL: Duration = Duration::from_millis(250);
/// How often to remove expired revocations from memory.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(5);
/// How often to log the wrong admin tokens that had no message of their own.
const WRONG_TOKENS_INTERVAL: Duration = Duration::from_secs(2);

/// Dropping it ends the thread.
pub(super) struct ControlThread {
    stop: watch::Sender<bool>,
    /// Becomes true when another gateway has taken over.
    pub(super) replaced: watch::Receiver<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    /// `hand_over` ends when another gateway has taken over.
    pub(super) fn start(
        runtime: Runtime,
        control: Control,
        hand_over: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = watch::channel(false);
        let (replacing, replaced) = watch::channel(false);
        let thread = thread::start("control", runtime, move || control.run(hand_over, stopped, replacing))?;
        Ok(ControlThread { stop, replaced, thread: Some(thread) })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which also ends it.
            let _ = thread.join();
        }
    }
}

/// What the control thread works on.
pub(super) struct Control {
    pub(super) live: Arc<LiveConfig>,
    pub(super) admin: Arc<Admin>,
    pub(super) connections: Arc<AdminConnections>,
    pub(super) socket: AdminSocket,
    /// True with PostgreSQL: the store stays open after a take-over.
    pub(super) is_shared: bool,
}

impl Control {
    /// Runs until `stopped` is true. Sets `replaced` when `hand_over` ends.
    async fn run(
        self,
        hand_over: impl Future<Output = ()>,
        mut stopped: watch::Receiver<bool>,
        replaced: watch::Sender<bool>,
    ) {
        let Control { live, admin, connections, socket, is_shared } = self;
        let state = live.state.clone();
        let AdminSocket { local, socket, tls } = socket;
        let listener = unless_failed(socket::into_tokio(socket));
        let listener =
            listener.map(|listener| tokio::spawn(admin::serve(listener, tls, connections.clone(), admin.clone())));
        let local_listener = unless_failed(local.accepting());
        let local_listener =
            local_listener.map(|listener| tokio::spawn(admin::serve_local(listener, connections, admin.clone())));
        let mut local = Some(local);
        // In tasks of their own: on a slow disk, they must not delay anything else here.
        let sweeping = tokio::spawn(state.sweep_regularly());
        let keys = tokio::spawn(update_own_keys(state.clone()));
        let snapshots = admin.snapshots.clone();
        let clock = admin.clock.clone();
        let snapshots = tokio::spawn(async move { snapshots.take_regularly(clock).await });
        let followed_keys = tokio::spawn(state.follow_keys());
        let ticket_keys = tokio::spawn(state.follow_ticket_keys());
        let staleness = tokio::spawn(stale_requests::report(state.store.freshness()));
        let stream_reads = tokio::spawn(read_for_streams(state.clone()));
        let providers = tokio::spawn(tell_providers(state.clone()));
        let refreshes = tokio::spawn(resume_refreshes(state.clone()));
        let mut acme = Some(AcmeTasks::start(&live, &admin.counters));
        let file_poll = live.config().file_poll;
        drop(live);
        let mut event_streams = Some(state.event_streams.start(&state.broker, &state.clock, file_poll));
        let mut hand_over = pin!(hand_over);
        let mut confirm = every(CONFIRM_INTERVAL);
        let mut expire = every(EXPIRE_INTERVAL);
        let mut wrong_tokens = every(WRONG_TOKENS_INTERVAL);
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                _ = confirm.tick(), if is_shared || !*replaced.borrow() => write_confirmations(&state).await,
                _ = expire.tick() => state.auth.revocations.remove_expired(),
                _ = wrong_tokens.tick() => admin.wrong_tokens.log_others(),
                () = &mut hand_over, if !*replaced.borrow() => {
                    // Another gateway now has the sockets, and the SQLite store. Admin connections are still served,
                    // and those that wait at the Unix socket. The next gateway can now use its path.
                    listener.iter().for_each(|listener| listener.abort());
                    local = None;
                    event_streams = None;
                    if !is_shared {
                        acme = None;
                        sweeping.abort();
                        keys.abort();
                        providers.abort();
                        refreshes.abort();
                    }
                    let _ = replaced.send(true);
                }
            }
        }
        drop((local, event_streams, acme));
        admin.wrong_tokens.log_others();
        local_listener.iter().for_each(|listener| listener.abort());
        admin.stats_streams.end().await;
        snapshots.abort();
        sweeping.abort();
        keys.abort();
        followed_keys.abort();
        ticket_keys.abort();
        staleness.abort();
        stream_reads.abort();
        providers.abort();
        refreshes.abort();
        tokio::join!(state.login_refresh.finish(REFRESH_GRACE), state.broker.detached.finish(REFRESH_GRACE));
        if is_shared || !*replaced.borrow() {
            write_confirmations(&state).await;
        }
    }
}

fn unless_failed<T>(listener: io::Result<T>) -> Option<T> {
    listener.inspect_err(|error| tracing::error!(%error, "cannot use the admin listener")).ok()
}

pub(super) async fn write_confirmations(state: &SharedState) {
    let seen = state.auth.seen_generations.begin_write();
    if seen.is_empty() {
        return;
    }
    match state.broker.with_timeout(state.store.confirm(seen)).await {
        Ok(()) => state.auth.seen_generations.end_write(),
        Err(error) => {
            // Without them, the parent of a rotation stays valid longer.
            tracing::warn!(%error, "cannot write confirmations to the store; they are written again");
            state.auth.seen_generations.write_failed();
        }
    }
}

/// Lets the streams of API keys, of logins at providers and of opaque tokens go on, or ends them.
async fn read_for_streams(state: Arc<SharedState>) {
    let auth = &state.auth;
    let reads = Arc::new(StreamReads {
        renewals: auth.renewals.clone(),
        api_keys: auth.api_keys.clone(),
        handles: auth.handles.clone(),
        keyring: auth.keyring.clone(),
        clock: state.clock.clone(),
        lifetime: state.broker.settings.lifetimes.access,
    });
    // Dropped with this task, which ends them.
    let mut tasks = JoinSet::new();
    let mut due = every(STREAM_INTERVAL);
    loop {
        due.tick().await;
        while tasks.try_join_next().is_some() {}
        reads.begin(&mut tasks);
        state.introspection.load_full().ask_for_streams(&mut tasks, &state.auth.keyring, &state.clock);
    }
}

/// Revokes the tokens of logins that have ended at their providers. Each provider has a task of its own, so that one
/// that hangs delays no other.
async fn tell_providers(state: Arc<SharedState>) {
    // Dropped with this task, which ends them.
    let mut tasks = JoinSet::new();
    let mut running: HashMap<Arc<str>, AbortHandle> = HashMap::new();
    let mut due = every(TELL_INTERVAL);
    loop {
        due.tick().await;
        while tasks.try_join_next().is_some() {}
        running.retain(|_, task| !task.is_finished());
        for with in state.sign_ins.load().all() {
            if running.contains_key(&with.provider.name) {
                continue;
            }
            let name = with.provider.name.clone();
            let with = with.clone();
            let state = state.clone();
            let task = tasks.spawn(async move { state.broker.tell_provider(&with, &*state.clock).await });
            running.insert(name, task);
        }
    }
}

/// Repeats refreshes that were interrupted.
async fn resume_refreshes(state: Arc<SharedState>) {
    let mut due = every(RESUME_INTERVAL);
    loop {
        due.tick().await;
        if !state.sign_ins.load().is_empty() {
            state.login_refresh.resume().await;
        }
    }
}

/// Logs an error once while it lasts. Until it ends, the current keys stay active.
async fn update_own_keys(state: Arc<SharedState>) {
    let mut due = every(KEY_INTERVAL);
    let mut last_error = String::new();
    loop {
        due.tick().await;
        let result = state.broker.own_keys.tick(state.clock.now()).await;
        let error = result.err().map(|error| with_causes(&error)).unwrap_or_default();
        if !error.is_empty() && error != last_error {
            tracing::error!(error, "cannot update the signing keys");
        }
        last_error = error;
    }
}
