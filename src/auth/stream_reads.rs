//! Reads API keys and the handles of logins again while they have open streams: when a request would have to. The
//! streams go on, or end if they have lost their rights.
//!
//! Each read is a task of its own. A login may wait for its provider, and no other stream waits with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::auth::api_keys::ApiKeys;
use crate::auth::handles::Handles;
use crate::auth::keyring::Keyring;
use crate::auth::renewals::{Renewals, StreamRead};
use crate::auth::token_cache::CachedToken;
use crate::tokens::credential_kind::CredentialKind;
use crate::tokens::jwt::{Issuer, VerifiedToken};
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::{Reason, Reject};

/// How soon a failed read is repeated, at the latest.
const MAX_RETRY: Duration = Duration::from_secs(10);

/// What the reads need.
pub struct StreamReads {
    pub renewals: Arc<Renewals>,
    pub api_keys: Arc<ApiKeys>,
    pub handles: Arc<Handles>,
    pub keyring: Arc<Keyring>,
    pub clock: Arc<dyn Clock>,
    /// `tokens.access_lifetime`: how long a stream outlives its last read.
    pub lifetime: Duration,
}

impl StreamReads {
    /// Begins the reads that are due.
    pub fn begin(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        for read in self.renewals.due(self.clock.now()) {
            let this = self.clone();
            tasks.spawn(async move { this.read(read).await });
        }
    }

    async fn read(&self, read: StreamRead) {
        let result = match read.kind {
            CredentialKind::ApiKey => self.read_api_key(&read).await,
            // Boxed, as most of it is needed only while it waits for a provider.
            CredentialKind::Handle => Box::pin(self.read_handle(&read)).await,
            // Not of the store. The client, or its issuer, renews it.
            CredentialKind::Jwt | CredentialKind::Opaque => Ok(()),
        };
        // Why is in the log already. Requests fail as well.
        if result.is_err() {
            read.put_off(self.retry_at(self.clock.now()));
        }
    }

    async fn read_api_key(&self, read: &StreamRead) -> Result<(), Reject> {
        let now = self.clock.now();
        match self.api_keys.read_for_stream(read.id, now).await? {
            Some(family) => {
                let until = self.api_keys.usable_until(now);
                self.record(read, until, |policy| self.api_keys.stand_for(&family, policy, now));
            }
            None => read.end(Reason::BadApiKey),
        }
        Ok(())
    }

    async fn read_handle(&self, read: &StreamRead) -> Result<(), Reject> {
        let now = self.clock.now();
        match self.handles.read_for_stream(read.id, now).await? {
            Ok(login) => {
                self.record(read, login.usable_until, |policy| self.handles.stand_for(&login, policy, now));
                if login.is_stale {
                    read.put_off(self.retry_at(now));
                }
            }
            Err(bad) => read.end(bad.reject().reason),
        }
        Ok(())
    }

    /// Requests and streams go on with what was read, until this time.
    fn record(&self, read: &StreamRead, until: UnixTime, stand_for: impl FnOnce(&Arc<Issuer>) -> VerifiedToken) {
        let key_revision = self.keyring.revision();
        let token = stand_for(&self.keyring.keys().own().trusted.policy);
        let known = CachedToken::new("", token, Vec::new(), key_revision);
        read.record(known.usable_until(until), self.clock.uptime());
    }

    fn retry_at(&self, now: UnixTime) -> UnixTime {
        now + MAX_RETRY.min(self.lifetime / 8)
    }
}
