//! The thread that reloads: after SIGHUP, a request to the admin API, or a change of a watched file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::error::StartError;
use super::reload::LiveConfig;
use super::systemd::notify_systemd;
use super::thread::spawn;
use crate::admin::{ReloadError, ReloadRequest, Reloaded};
use crate::config::{self, Config, ConfigWarnings, NamedFile, Probe, Watch};
use crate::types::regular_file;
use crate::types::reject::with_causes;

/// How long a file must stay unchanged before it is reloaded: another process may still be writing it.
const SETTLE_TIME: Duration = Duration::from_millis(250);

/// The key that names the file of the signing key.
const SIGNING_KEY: &str = "tokens.signing_key_file";

/// How long the end of the process waits for a reload, and how often it looks: a network file system can hang.
const END_TIME: Duration = Duration::from_secs(5);
const END_POLL: Duration = Duration::from_millis(5);

/// Both ends of the queue of reload requests.
pub(super) struct ReloadQueue {
    pub(super) sender: Sender<ReloadRequest>,
    receiver: Receiver<ReloadRequest>,
}

impl ReloadQueue {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        ReloadQueue { sender, receiver }
    }
}

/// Dropping it ends the thread.
pub(super) struct ReloadThread {
    stop: watch::Sender<bool>,
    requests: Sender<ReloadRequest>,
    thread: Option<JoinHandle<()>>,
}

impl ReloadThread {
    /// Starts the thread, which reloads from `file`.
    pub(super) fn start(live: Arc<LiveConfig>, file: PathBuf, queue: ReloadQueue) -> Result<Self, StartError> {
        let (stop, stopped) = watch::channel(false);
        let file_poll = live.config().file_poll;
        let mut reloader = Reloader { live, file, seen: Files::new(), lost: BTreeMap::new() };
        reloader.seen = reloader.read_watched();
        let thread = spawn("reload", move || {
            loop {
                match queue.receiver.recv_timeout(file_poll) {
                    _ if *stopped.borrow() => break,
                    // An error means that the client of the admin API has disconnected.
                    Ok(ReloadRequest { is_dry_run: true, reply }) => {
                        drop(reply.send(reloader.apply(LiveConfig::dry_run)))
                    }
                    Ok(ReloadRequest { reply, .. }) => drop(reply.send(reloader.reload())),
                    Err(RecvTimeoutError::Timeout) => reloader.poll(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        })?;
        Ok(ReloadThread { stop, requests: queue.sender, thread: Some(thread) })
    }

    /// Requests a reload, and does not wait for it.
    pub(super) fn request(&self) {
        let (reply, _) = oneshot::channel();
        // An error means that the thread has panicked, which is logged.
        let _ = self.requests.send(ReloadRequest { is_dry_run: false, reply });
    }
}

impl Drop for ReloadThread {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        // Wakes the thread.
        self.request();
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + END_TIME;
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                tracing::warn!("a reload still reads files: ending without it");
                return;
            }
            thread::sleep(END_POLL);
        }
        let _ = thread.join();
    }
}

/// The content of the watched files. `None` for a file that cannot be read.
type Files = BTreeMap<PathBuf, Option<Vec<u8>>>;

struct Reloader {
    live: Arc<LiveConfig>,
    file: PathBuf,
    /// The files at the last reload.
    seen: Files,
    /// What was in the secrets of the start that cannot be read any more.
    lost: BTreeMap<PathBuf, Vec<u8>>,
}

impl Reloader {
    /// Reads the configuration again, and logs the result.
    fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let before = self.read_watched();
        let reloading = NotifyState::monotonic_usec_now().map(|now| [NotifyState::Reloading, now]);
        notify_systemd(reloading.as_ref().map_or(&[NotifyState::Reloading], |both| both.as_slice()));
        let result = self.apply(LiveConfig::reload);
        notify_systemd(&[NotifyState::Ready]);
        self.remember(before);
        self.live.metrics.record(result.is_ok(), &*self.live.clock);
        log(&result);
        result
    }

    /// `apply`: [`LiveConfig::reload`] or [`LiveConfig::dry_run`].
    fn apply(&self, apply: fn(&LiveConfig, Config) -> Result<Reloaded, StartError>) -> Result<Reloaded, ReloadError> {
        let (config, warnings) = self.read()?;
        let reloaded = apply(&self.live, config).map_err(failed)?;
        Ok(Reloaded { warnings: warnings.lines().chain(reloaded.warnings).collect(), ..reloaded })
    }

    fn read(&self) -> Result<(Config, ConfigWarnings), ReloadError> {
        let too_long = |config: &Config| self.live.state.too_long_lifetimes(config);
        config::load_and_try(&self.file, Probe::None, too_long).map_err(|errors| ReloadError {
            report: errors.render(false),
            errors: serde_json::from_str(&errors.json()).unwrap_or_default(),
        })
    }

    /// Keeps what was in the files before the reload, so that a change during the reload is noticed, also the end of an
    /// included file. The reload may have added files, which count as they are now.
    fn remember(&mut self, before: Files) {
        self.seen = self.read_watched();
        let gone = before.iter().filter(|(path, _)| !path.exists());
        gone.for_each(|(path, content)| drop(self.seen.insert(path.clone(), content.clone())));
        for (path, content) in &mut self.seen {
            if let Some(before) = before.get(path) {
                content.clone_from(before);
            }
        }
    }

    /// Reloads once for each change, also if the reload fails.
    fn poll(&mut self) {
        let now = self.read_watched();
        if now == self.seen {
            return;
        }
        thread::sleep(SETTLE_TIME);
        if self.read_watched() != now {
            return;
        }
        let has_changed = |file: &&NamedFile| now.get(&file.path) != self.seen.get(&file.path);
        let config = self.live.config();
        let watch = config.watch;
        let files = config.files.iter().filter(has_changed).cloned().collect::<Vec<_>>();
        let (at_start, loaded): (Vec<_>, Vec<_>) = files.into_iter().partition(NamedFile::requires_restart);
        for NamedFile { key, path } in at_start {
            let file = path.display();
            match now.get(&path) {
                Some(Some(content)) if self.lost.remove(&path).is_some_and(|lost| lost == *content) => {
                    tracing::info!(key, %file, "a secret can be read again, and has not changed")
                }
                Some(Some(_)) => {
                    tracing::warn!(key, %file, "a secret has changed; the gateway uses it after a restart")
                }
                _ => {
                    tracing::error!(key, %file, "a secret cannot be read any more; the next start needs it");
                    if let Some(Some(content)) = self.seen.get(&path) {
                        self.lost.insert(path, content.clone());
                    }
                }
            }
        }
        match watch {
            // This also updates the set of watched files.
            Watch::All => return drop(self.reload()),
            Watch::Certificates if !loaded.is_empty() => self.reload_files(&loaded),
            Watch::Certificates | Watch::Off => {}
        }
        self.seen = now;
    }

    /// Reads the certificates and the signing key again: both, so that the metric tells whether all are active.
    fn reload_files(&self, changed: &[NamedFile]) {
        let is_key = |file: &NamedFile| file.key == SIGNING_KEY;
        let key = self.live.reload_signing_key();
        match &key {
            Ok(()) if changed.iter().any(is_key) => tracing::info!("{SIGNING_KEY} has changed"),
            Ok(()) => {}
            Err(error) => {
                let error = with_causes(error);
                tracing::error!(error, "{SIGNING_KEY} has changed and is invalid; the old key signs");
            }
        }
        let certificates = self.live.reload_certificates();
        self.live.metrics.record(key.is_ok() && certificates.is_ok(), &*self.live.clock);
        match certificates {
            Ok(_) if changed.iter().all(is_key) => {}
            Ok(warnings) => {
                tracing::info!("certificate files have changed; the new certificates are active");
                warn_of_files(&warnings);
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::error!(
                    error,
                    "certificate files have changed and are invalid; the old certificates stay active"
                );
            }
        }
    }

    fn read_watched(&self) -> Files {
        let paths = watched(&self.live.config(), &self.file);
        paths.into_iter().map(|path| (path.clone(), regular_file::read(&path).ok())).collect()
    }
}

/// For files that the gateway has read by itself: nothing else says what is wrong with them.
pub(super) fn warn_of_files(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!(warning, "the certificate files that were read have a fault; they are active");
    }
}

fn failed(error: StartError) -> ReloadError {
    ReloadError { report: with_causes(&error), errors: Value::Array(vec![]) }
}

fn log(result: &Result<Reloaded, ReloadError>) {
    for warning in result.iter().flat_map(|reloaded| &reloaded.warnings) {
        tracing::warn!(warning, "the reloaded configuration has a warning");
    }
    match result {
        Ok(reloaded) if reloaded.requires_restart.is_empty() => {
            tracing::info!(changed = reloaded.active.join(", "), "reloaded");
        }
        Ok(reloaded) => {
            let changed = reloaded.active.join(", ");
            let requires_restart = reloaded.restart_keys().join(", ");
            tracing::warn!(changed, requires_restart, "reloaded; some changes require a restart");
        }
        Err(error) => tracing::error!("not reloaded; the current settings stay active:\n{}", error.report),
    }
}

fn watched(config: &Config, file: &Path) -> Vec<PathBuf> {
    if config.watch == Watch::Off {
        return Vec::new();
    }
    let is_all = config.watch == Watch::All;
    let is_watched =
        |file: &&NamedFile| is_all || is_certificate(&file.key) || file.key == SIGNING_KEY || file.requires_restart();
    let mut paths: Vec<_> = config.files.iter().filter(is_watched).map(|file| file.path.clone()).collect();
    if is_all {
        paths.push(file.to_owned());
        paths.extend(config::included(&config.include));
    }
    paths
}

/// A certificate of a listener, its key, and what checks the certificates of clients.
fn is_certificate(key: &str) -> bool {
    ["listener", "admin.tls"].iter().any(|table| key.starts_with(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_that_hangs_does_not_stop_the_end() {
        let (stop, _stopped) = watch::channel(false);
        let ReloadQueue { sender, receiver } = ReloadQueue::new();
        // As a read of a network file system that is gone.
        let thread = spawn("hung", move || drop(receiver.iter().find(|_| false))).expect("a thread");
        let hung = ReloadThread { stop, requests: sender.clone(), thread: Some(thread) };
        let requests = sender;
        let began = Instant::now();
        drop(hung);
        assert!((END_TIME..3 * END_TIME).contains(&began.elapsed()), "{:?}", began.elapsed());
        drop(requests);
    }
}
