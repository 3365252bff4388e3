//! The task that keeps one issuer's keys up to date. It can be aborted at any time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::error::KeySourceError;
use super::refetch::Refetch;
use super::remote::KeySourceClient;
use super::schedule::{next_refresh, next_try};
use super::settings::{KeyFile, KeySource, Remote};
use super::snapshot::KeyUser;
use super::source::Source;
use crate::types::clock::{Clock, every};
use crate::types::reject::with_causes;
use crate::types::secret;

/// How often the age of fetched keys is checked.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Runs until it is dropped. `file_poll`: how often a file is read.
pub async fn watch(source: Arc<Source>, user: Arc<dyn KeyUser>, clock: Arc<dyn Clock>, file_poll: Duration) {
    let watch = Watch { source: source.clone(), user, clock };
    match (&source.settings, &source.refetch) {
        (KeySource::Remote(remote), Some(refetch)) => Box::pin(watch.follow_issuer(remote, refetch)).await,
        (KeySource::File(file), _) => watch.poll_file(file, file_poll).await,
        (KeySource::Remote(_), None) | (KeySource::None, _) => {}
    }
}

/// The digest of a file, or why it could not be read.
type FileDigest = Result<[u8; 32], String>;

struct Watch {
    source: Arc<Source>,
    user: Arc<dyn KeyUser>,
    clock: Arc<dyn Clock>,
}

impl Watch {
    /// Fetches the keys before they expire, and at once when a request waits for a key.
    async fn follow_issuer(&self, remote: &Remote, refetch: &Refetch) {
        let mut client = KeySourceClient::new(remote.clone(), self.source.policy.clone());
        let mut failures = 0;
        let mut is_urgent = false;
        loop {
            let fetch = refetch.start();
            let delay = match client.fetch(is_urgent).await {
                Ok(fetched) => {
                    failures = 0;
                    let now = self.clock.uptime();
                    fetched.document.into_iter().for_each(|document| self.source.keep_document(document));
                    self.publish_if(match fetched.keys {
                        Some(keys) => self.source.confirm(keys, now),
                        None => self.source.confirm_unchanged(now),
                    });
                    next_refresh(fetched.max_age, &remote.refresh, jitter())
                }
                Err(error) => {
                    failures += 1;
                    self.source.record_failure(&error, self.clock.uptime());
                    next_try(failures, &remote.refresh, jitter())
                }
            };
            refetch.finish(fetch);
            is_urgent = self.sleep(Instant::now() + delay, refetch).await;
        }
    }

    /// Sleeps until the deadline, or until a request waits for a key. Returns true in the latter case.
    async fn sleep(&self, deadline: Instant, refetch: &Refetch) -> bool {
        let mut age_check = every(AGE_CHECK);
        loop {
            tokio::select! {
                () = sleep_until(deadline) => return false,
                () = refetch.requested() => return true,
                _ = age_check.tick() => self.publish_if(self.source.withdraw_if_stale(self.clock.uptime())),
            }
        }
    }

    /// Reads the file at intervals. An invalid file leaves the current keys in force.
    async fn poll_file(&self, file: &KeyFile, interval: Duration) {
        let mut poll = every(interval);
        let mut last = None;
        loop {
            poll.tick().await;
            self.poll_file_once(file, &mut last).await;
        }
    }

    async fn poll_file_once(&self, file: &KeyFile, last: &mut Option<FileDigest>) {
        let content = read(file.clone()).await;
        let this = content.as_ref().map(|content| secret::digest(&[content])).map_err(|error| with_causes(error));
        // Only a change is handled: an invalid file is reported once, not each time.
        if last.as_ref() != Some(&this) {
            *last = Some(this);
            match content.and_then(|content| file.admit(&content, &self.source.policy)) {
                Ok(keys) => self.publish_if(self.source.confirm(keys, self.clock.uptime())),
                Err(error) => self.source.record_failure(&error, self.clock.uptime()),
            }
        } else if !self.source.is_failing() {
            self.publish_if(self.source.confirm_unchanged(self.clock.uptime()));
        }
    }

    fn publish_if(&self, changed: bool) {
        if changed {
            self.user.publish();
        }
    }
}

/// Reads on a thread that may block: a network file system can hang.
async fn read(file: KeyFile) -> Result<Vec<u8>, KeySourceError> {
    let path = file.path().clone();
    let read = tokio::task::spawn_blocking(move || file.content()).await;
    read.unwrap_or_else(|error| Err(KeySourceError::ReadFile { path, source: error.into() }))
}

/// A random number from 0 to 1.
fn jitter() -> f64 {
    f64::from(u32::from_be_bytes(secret::random())) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::auth::keyring::Keyring;
    use crate::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer};
    use crate::types::clock::SystemClock;

    #[tokio::test]
    async fn an_invalid_file_is_reported_once_and_stays_invalid() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let settings = KeyFile::Secret(file.path().into());
        let policy = Issuer {
            issuer: "https://a.example".into(),
            audience: Audience::Any,
            resources: Vec::new(),
            algorithms: vec![Algorithm::HS256],
            types: Vec::new(),
            clock_skew: Duration::ZERO,
            max_lifetime: Duration::from_hours(1),
            require_subject: true,
            confirmation: Confirmation::Reject,
            own: false,
        };
        let source = Arc::new(Source::new(policy, KeySource::File(settings.clone())));
        let user = Arc::new(Keyring::with_a_new_key());
        let watch = Watch { source: source.clone(), user, clock: Arc::new(SystemClock) };
        let mut last = None;
        let counts = || [&source.counts.changed, &source.counts.unchanged, &source.counts.failed];
        for (secret, expected, is_failing) in [
            ("0123456789abcdef0123456789abcdef", [1, 0, 0], false),
            ("0123456789abcdef0123456789abcdef", [1, 1, 0], false),
            ("short", [1, 1, 1], true),
            ("short", [1, 1, 1], true),
            ("0123456789abcdef0123456789abcdef", [1, 2, 1], false),
        ] {
            std::fs::write(file.path(), secret).expect("written");
            watch.poll_file_once(&settings, &mut last).await;
            assert_eq!(counts().map(|count| count.load(Ordering::Relaxed)), expected, "{secret}");
            assert_eq!((source.is_failing(), source.has_keys()), (is_failing, true), "{secret}");
        }
    }

    #[test]
    fn a_jitter_is_a_random_part() {
        let some: Vec<f64> = (0..100).map(|_| jitter()).collect();
        assert!(some.iter().all(|part| (0.0..=1.0).contains(part)), "{some:?}");
        assert!(some.iter().any(|part| *part < 0.5) && some.iter().any(|part| *part > 0.5), "{some:?}");
    }
}
