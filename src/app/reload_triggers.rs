//! Who asks for a reload, and the watch on disk: a thread that SIGHUP and the admin API ask, and that looks whether files have
//! changed. It reads the configuration and says what came of it; what is swapped then is in `reload`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sd_notify::NotifyState;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::reload::LiveConfig;
use super::tell_systemd;
use crate::admin::{ReloadError, ReloadReply, Reloaded};
use crate::config::{self, Config, Probe, Watch};
use crate::protocols::tls;

/// How often files are looked at: by their content, as Kubernetes swaps links, and copies keep old times.
const POLL: Duration = Duration::from_secs(2);
/// What has changed is taken when it has stayed the same for so long: whoever writes a file may be in the middle of it.
const SETTLED: Duration = Duration::from_millis(250);

/// The way to the thread. Dropping it ends it.
pub(super) struct Reloading {
    stop: watch::Sender<bool>,
    asking: Sender<ReloadReply>,
    thread: Option<JoinHandle<()>>,
}

impl Reloading {
    /// Those who ask through `asked` are answered.
    pub(super) fn start(
        live: Arc<LiveConfig>,
        file: PathBuf,
        (asking, asked): (Sender<ReloadReply>, Receiver<ReloadReply>),
    ) -> Result<Self, String> {
        let (stop, stopped) = watch::channel(false);
        let mut reloader = Reloader { live, file, seen: BTreeMap::new() };
        reloader.seen = reloader.look();
        let run = move || {
            loop {
                match asked.recv_timeout(POLL) {
                    _ if *stopped.borrow() => break,
                    // Whoever asked may have gone.
                    Ok(asking) => drop(asking.send(reloader.reload())),
                    Err(RecvTimeoutError::Timeout) => reloader.poll(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        let thread = thread::Builder::new().name("reload".into()).spawn(run);
        let thread = thread.map_err(|error| format!("the reload thread cannot start: {error}"))?;
        Ok(Reloading { stop, asking, thread: Some(thread) })
    }

    /// Asks for a reload and does not wait for it.
    pub(super) fn ask(&self) {
        let (asking, _) = oneshot::channel();
        // A thread that panicked has said so.
        let _ = self.asking.send(asking);
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        // Wakes it.
        self.ask();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Seen = BTreeMap<PathBuf, Option<Vec<u8>>>;

struct Reloader {
    live: Arc<LiveConfig>,
    file: PathBuf,
    /// What was in the files when they were read last.
    seen: Seen,
}

impl Reloader {
    /// The file again. Whatever comes of it is said.
    fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let before = self.look();
        let reloading = NotifyState::monotonic_usec_now().map(|now| [NotifyState::Reloading, now]);
        tell_systemd(reloading.as_ref().map_or(&[NotifyState::Reloading], |both| both.as_slice()));
        let done = self.load();
        tell_systemd(&[NotifyState::Ready]);
        self.seen = self.look();
        for (path, content) in &mut self.seen {
            // As it was read, or earlier. What nobody looked at before counts as it is now.
            if let Some(before) = before.get(path) {
                content.clone_from(before);
            }
        }
        self.live.outcomes.note(done.is_ok(), &*self.live.clock);
        match &done {
            Ok(done) if done.takes_restart.is_empty() => {
                tracing::info!(in_force = done.in_force.join(", "), "reloaded");
            }
            Ok(done) => {
                let (in_force, takes_restart) = (done.in_force.join(", "), done.takes_restart.join(", "));
                tracing::warn!(in_force, takes_a_restart = takes_restart, "reloaded, but for these");
            }
            Err(refused) => tracing::error!("nothing was reloaded:\n{}", refused.report),
        }
        done
    }

    fn load(&self) -> Result<Reloaded, ReloadError> {
        let config = config::load(&self.file, Probe::None).map_err(|faults| ReloadError {
            report: faults.render(false),
            faults: serde_json::from_str(&faults.json()).unwrap_or_default(),
        })?;
        self.live
            .reload(config)
            .map_err(|error| ReloadError { report: error.to_string(), faults: Value::Array(vec![]) })
    }

    /// A change is taken once, whether it can be used or not.
    fn poll(&mut self) {
        let now = self.look();
        if now == self.seen {
            return;
        }
        thread::sleep(SETTLED);
        if self.look() != now {
            return;
        }
        let watch = self.live.config().watch;
        match watch {
            // What is watched from then on may be other files.
            Watch::All => return drop(self.reload()),
            Watch::Certificates => {
                let done = self.live.reload_certificates();
                self.live.outcomes.note(done.is_ok(), &*self.live.clock);
                match done {
                    Ok(()) => tracing::info!("certificates have changed on disk, and are in force"),
                    Err(fault) => {
                        tracing::error!(fault, "certificates have changed on disk, and the old stay in force")
                    }
                }
            }
            Watch::Off => {}
        }
        self.seen = now;
    }

    fn look(&self) -> Seen {
        let paths = watched(&self.live.config(), &self.file);
        paths.into_iter().map(|path| (path.clone(), fs::read(path).ok())).collect()
    }
}

fn watched(config: &Config, file: &Path) -> Vec<PathBuf> {
    if config.watch == Watch::Off {
        return Vec::new();
    }
    let mut paths = Vec::new();
    for settings in config.listeners.iter().map(|listener| &listener.tls).chain([&config.admin.tls]) {
        if let tls::Settings::Certificates(pairs) = settings {
            paths.extend(pairs.iter().flat_map(|pair| [pair.certificate.clone(), pair.key.clone()]));
        }
    }
    if config.watch == Watch::All {
        paths.push(file.to_owned());
        paths.extend(config.upstreams.iter().flat_map(|upstream| upstream.tls.files().cloned()));
    }
    paths
}
