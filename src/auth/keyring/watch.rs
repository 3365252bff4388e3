//! The task that keeps one issuer's keys up to date. Whoever spawns it can end it at any time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Keyring;
use super::refetch::Refetch;
use super::remote::KeySourceClient;
use super::schedule::{next_refresh, next_try};
use super::settings::{KeyFile, KeySource, Remote};
use super::source::Source;
use crate::types::clock::{Clock, every};
use crate::types::secret;

/// How often a file is looked at. Its content decides, not its time: Kubernetes swaps links, and copies keep old times.
const FILE_POLL: Duration = Duration::from_secs(2);
/// How often the age of keys is looked at.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub async fn watch(source: Arc<Source>, keyring: Arc<Keyring>, clock: Arc<dyn Clock>) {
    let watch = Watch { source: source.clone(), keyring, clock };
    match (&source.settings, &source.refetch) {
        (KeySource::Remote(remote), Some(refetch)) => watch.follow(remote, refetch).await,
        (KeySource::File(file), _) => watch.poll(file).await,
        (KeySource::Remote(_), None) => {}
    }
}

struct Watch {
    source: Arc<Source>,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
}

impl Watch {
    /// Goes to the issuer ahead of each expiry, and at once for a request that waits for a key.
    async fn follow(&self, remote: &Remote, refetch: &Refetch) {
        let mut visitor = KeySourceClient::new(remote.clone(), self.source.policy.clone());
        let (mut failures, mut in_haste) = (0, false);
        loop {
            let visit = refetch.begin();
            let pause = match visitor.visit(in_haste).await {
                Ok(found) => {
                    failures = 0;
                    let now = self.clock.now();
                    self.publish_if(match found.keys {
                        Some(keys) => self.source.confirm(keys, now),
                        None => self.source.confirm_same(now),
                    });
                    next_refresh(found.max_age, &remote.refresh, luck())
                }
                Err(fault) => {
                    failures += 1;
                    self.source.fail(&fault);
                    next_try(failures, &remote.refresh, luck())
                }
            };
            refetch.end(visit);
            in_haste = self.rest(Instant::now() + pause, refetch).await;
        }
    }

    /// Until it is time, or a request waits: then the answer is true.
    async fn rest(&self, until: Instant, refetch: &Refetch) -> bool {
        let mut age_check = every(AGE_CHECK);
        loop {
            tokio::select! {
                () = sleep_until(until) => return false,
                () = refetch.wanted() => return true,
                _ = age_check.tick() => self.publish_if(self.source.withdraw_if_stale(self.clock.now())),
            }
        }
    }

    /// Looks at the file again and again. A file that cannot be used leaves the keys as they are.
    async fn poll(&self, file: &KeyFile) {
        let mut poll = every(FILE_POLL);
        let mut last = None;
        loop {
            poll.tick().await;
            let content = read(file.path()).await;
            let this = Some(content.as_ref().map(|content| secret::digest(&[content])).map_err(String::clone));
            // A file that is broken is said to be so once, and not at every look.
            if last != this {
                last = this;
                self.take(file, content);
            } else if !self.source.is_failing() {
                self.publish_if(self.source.confirm_same(self.clock.now()));
            }
        }
    }

    fn take(&self, file: &KeyFile, content: Result<Vec<u8>, String>) {
        match content.and_then(|content| file.admit(&content, &self.source.policy).map_err(String::from)) {
            Ok(keys) => self.publish_if(self.source.confirm(keys, self.clock.now())),
            Err(fault) => self.source.fail(&format!("{}: {fault}", file.path().display())),
        }
    }

    fn publish_if(&self, changed: bool) {
        if changed {
            self.keyring.publish();
        }
    }
}

/// On a thread that may wait: a file system over the network can hang.
async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(path).map_err(|error| error.to_string()));
    read.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// From 0 to 1.
fn luck() -> f64 {
    f64::from(u32::from_be_bytes(secret::random())) / f64::from(u32::MAX)
}
