//! The gateway's own signing keys while it runs: created, rotated, revoked. [`schedule`] decides what is due; this
//! module does it.
//!
//! A change is durable before it is in force, and then in force for all workers at once, because they share one
//! snapshot. Changes run one after the other. Each one is completed, also if the client disconnects or the disk hangs;
//! a change that waits for the disk blocks the next one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::key_error::KeysError;
use super::key_file::KeyFile;
use super::key_tools::KeyTools;
use crate::auth::keyring::Keyring;
use crate::store::{DecideKeys, StoreError};
use crate::tokens::audit_event::EventContext;
use crate::tokens::jwt::algorithm_name;
use crate::tokens::jwt::sign::SigningKey;
use crate::tokens::signing::file_key::{self, Due};
use crate::tokens::signing::schedule::{self, MAX_KEYS, Use};
use crate::tokens::signing::{KeyLifetimes, KeyState, StoredKey};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject, with_causes};

pub struct OwnKeys {
    /// `None`: the keys never change. Only tests have that.
    tools: Option<KeyTools>,
    keyring: Arc<Keyring>,
    /// The keys as they are in the store.
    stored: ArcSwap<Vec<StoredKey>>,
    /// The use of each key when the snapshot in force was made.
    uses_in_force: Mutex<Vec<(String, Use)>>,
    /// Held during a change, from the store to the snapshot, so that an older snapshot never replaces a newer one.
    changing: tokio::sync::Mutex<()>,
}

/// One key as an operator sees it.
pub struct KeyStatus {
    pub kid: String,
    pub algorithm: String,
    pub state: &'static str,
    /// When the state changes by itself: the key begins to sign, retires, is accepted only at refreshes, is deleted.
    pub next_step: Option<UnixTime>,
    /// `None` for a key that never changes.
    pub stored: Option<StoredKey>,
}

impl OwnKeys {
    pub fn new(tools: Option<KeyTools>, stored: Vec<StoredKey>, keyring: Arc<Keyring>, now: UnixTime) -> Self {
        let uses = tools.as_ref().map(|tools| uses(&stored, tools, now)).unwrap_or_default();
        OwnKeys {
            tools,
            keyring,
            stored: ArcSwap::from_pointee(stored),
            uses_in_force: Mutex::new(uses),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Makes the changes that are due. Does not call the store if none is.
    pub async fn tick(self: &Arc<Self>, now: UnixTime) -> Result<(), KeysError> {
        let Some(tools) = &self.tools else { return Ok(()) };
        if let Some(file) = &tools.file {
            return self.tick_with_file(tools, file, now).await;
        }
        let stored = self.stored.load_full();
        let lifetimes = tools.lifetimes;
        let needs_new_key = schedule::needs_new_key(&stored, &lifetimes, now);
        if needs_new_key || schedule::advance(stored.to_vec(), &lifetimes, None, now) != *stored {
            let created = if needs_new_key { Some(tools.create(now).await?) } else { None };
            let decide = Box::new(move |keys| schedule::advance(keys, &lifetimes, created.as_ref(), now));
            return self.clone().change(tools.clone(), decide, now.into()).await;
        }
        self.update_uses(tools, &stored, now).await
    }

    async fn update_uses(&self, tools: &KeyTools, stored: &[StoredKey], now: UnixTime) -> Result<(), KeysError> {
        if *self.uses_in_force.lock() != uses(stored, tools, now) {
            let _guard = self.lock_changes(tools.store_timeout).await?;
            return self.put_in_force(tools, self.stored.load_full(), now);
        }
        Ok(())
    }

    async fn tick_with_file(
        self: &Arc<Self>,
        tools: &KeyTools,
        file: &KeyFile,
        now: UnixTime,
    ) -> Result<(), KeysError> {
        let stored = self.stored.load_full();
        let lifetimes = tools.lifetimes;
        let current = file.current();
        let read = file.read();
        let kid = read.kid.clone();
        let is_new = kid != current.kid;
        let decide: DecideKeys = match file_key::due(&kid, is_new, &stored, now) {
            Due::Revoked => return Err(KeysError::FileKeyRevoked { kid }),
            Due::Adopt => {
                let own = tools.row_of(&read, now)?;
                Box::new(move |keys| file_key::adopt(keys, &lifetimes, &own, now))
            }
            Due::Keep => Box::new(move |keys| file_key::keep(keys, &lifetimes, &kid, now)),
            Due::Nothing if is_new || file_key::advance(stored.to_vec(), &lifetimes, now) != *stored => {
                Box::new(move |keys| file_key::advance(keys, &lifetimes, now))
            }
            Due::Nothing => return self.update_uses(tools, &stored, now).await,
        };
        self.clone().change(tools.clone(), decide, now.into()).await?;
        if is_new {
            tracing::info!(kid = read.kid, replaced = current.kid, "a new key in tokens.signing_key_file signs");
        }
        Ok(())
    }

    /// The key in `tokens.signing_key_file` that signs.
    pub fn in_file(&self) -> Option<Arc<SigningKey>> {
        Some(self.tools.as_ref()?.file.as_ref()?.current())
    }

    /// The content of `tokens.signing_key_file`. Another key signs within a second, when the store has its public half.
    pub fn replace_file_key(&self, key: SigningKey) {
        if let Some(file) = self.tools.as_ref().and_then(|tools| tools.file.as_ref()) {
            file.replace(key);
        }
    }

    /// Puts the keys in force that are in the store, which another gateway may have changed.
    pub async fn reload(self: &Arc<Self>, now: UnixTime) -> Result<(), KeysError> {
        let Some(tools) = &self.tools else { return Ok(()) };
        self.clone().change(tools.clone(), Box::new(|keys| keys), now.into()).await
    }

    /// Prepares the next key. If `at_once` is true, it signs from now on: services that cache the key set see it only
    /// when they fetch the set again.
    pub async fn rotate(self: Arc<Self>, at_once: bool, context: EventContext) -> Result<(), Reject> {
        let now = context.at;
        let tools = self.tools.clone().filter(|tools| tools.file.is_none()).ok_or(Reason::KeysFixed)?;
        if self.stored.load().len() >= MAX_KEYS {
            let detail = format!("the store has {MAX_KEYS} signing keys, the maximum; wait until old ones are deleted");
            return Err(Reject::new(Reason::KeysTooMany, detail));
        }
        let rotate = move |keys, lifetimes: &KeyLifetimes, created: Option<&StoredKey>| match created {
            Some(created) => schedule::rotate(keys, lifetimes, created, at_once, now),
            None => keys,
        };
        self.change_by_operator(tools, context, rotate).await
    }

    /// Ends a key now and durably. Every token that it signed is rejected. If `may_refresh` is true, a refresh still
    /// accepts it. Rejected if the key was revoked for good before: what verifies its tokens is deleted.
    pub async fn revoke(self: Arc<Self>, kid: String, may_refresh: bool, context: EventContext) -> Result<(), Reject> {
        let now = context.at;
        let tools = self.tools.clone().ok_or(Reason::KeysFixed)?;
        if tools.file.as_ref().is_some_and(|file| file.current().kid == kid) {
            return Err(Reason::KeysFixed.into());
        }
        if !self.stored.load().iter().any(|key| key.kid == kid) {
            return Err(Reason::KeyNotFound.into());
        }
        self.check_may_refresh(&kid, may_refresh)?;
        let revoked = kid.clone();
        let revoke = move |keys, lifetimes: &KeyLifetimes, created: Option<&StoredKey>| {
            schedule::revoke(keys, lifetimes, created, &revoked, may_refresh, now)
        };
        self.clone().change_by_operator(tools, context, revoke).await?;
        // Another process may have revoked it in the meantime.
        self.check_may_refresh(&kid, may_refresh)
    }

    fn check_may_refresh(&self, kid: &str, may_refresh: bool) -> Result<(), Reject> {
        let stored = self.stored.load();
        match stored.iter().find(|key| key.kid == kid && key.is_revoked_for_good()) {
            Some(key) if may_refresh => {
                let since = key.revoked_at.map(|time| format!(", since {time}")).unwrap_or_default();
                Err(Reject::new(Reason::KeyFinallyRevoked, format!("{kid} is revoked for good{since}")))
            }
            _ => Ok(()),
        }
    }

    /// All keys, newest first, and when the next rotation is.
    pub fn list(&self, now: UnixTime) -> (Vec<KeyStatus>, Option<UnixTime>) {
        let Some(tools) = &self.tools else {
            let signing = self.keyring.keys().own().signing.clone();
            let algorithm = algorithm_name(signing.algorithm).to_owned();
            let fixed =
                KeyStatus { kid: signing.kid.clone(), algorithm, state: "active", next_step: None, stored: None };
            return (vec![fixed], None);
        };
        let stored = self.stored.load();
        let status = |key: &StoredKey| KeyStatus {
            kid: key.kid.clone(),
            algorithm: key.algorithm.clone(),
            state: state_name(key, tools, now),
            next_step: if tools.file.is_some() && key.is(KeyState::Active) {
                None
            } else {
                schedule::next_step(key, &stored, &tools.lifetimes, now)
            },
            stored: Some(key.clone()),
        };
        let next = if tools.file.is_some() { None } else { schedule::next_rotation(&stored, &tools.lifetimes) };
        (stored.iter().map(status).collect(), next)
    }

    /// Seconds since the active key began to sign, and seconds until the next one does (0: overdue). `None` if the key
    /// is not rotated.
    pub fn ages(&self, now: UnixTime) -> Option<(f64, f64)> {
        let tools = self.tools.as_ref().filter(|tools| tools.file.is_none())?;
        let stored = self.stored.load();
        let since = schedule::active(&stored)?.activated_at?;
        let next = schedule::next_rotation(&stored, &tools.lifetimes)?;
        Some((now.since(since).as_secs_f64(), next.since(now).as_secs_f64()))
    }

    async fn change_by_operator(
        self: Arc<Self>,
        tools: KeyTools,
        context: EventContext,
        decide: impl Fn(Vec<StoredKey>, &KeyLifetimes, Option<&StoredKey>) -> Vec<StoredKey> + Send + 'static,
    ) -> Result<(), Reject> {
        let changed = async {
            let created = match tools.file {
                Some(_) => None,
                None => Some(tools.create(context.at).await?),
            };
            let lifetimes = tools.lifetimes;
            let decide = Box::new(move |keys| decide(keys, &lifetimes, created.as_ref()));
            self.change(tools.clone(), decide, context).await?;
            // An earlier call may have made this change, and failed because the standby of the database is away.
            tools.with_timeout(async { Ok(tools.store.check().await?) }).await
        };
        changed.await.map_err(|error: KeysError| {
            let error = with_causes(&error);
            tracing::error!(error, "failed to change the signing keys");
            Reject::new(Reason::StoreUnavailable, error)
        })
    }

    /// Runs in a task of its own: if the client disconnects or the time is up in the middle of it, a key that is
    /// revoked in the store must not stay in force.
    async fn change(
        self: Arc<Self>,
        tools: KeyTools,
        decide: DecideKeys,
        context: EventContext,
    ) -> Result<(), KeysError> {
        let waiting = tools.clone();
        let change = tokio::spawn(async move {
            let _guard = self.lock_changes(tools.store_timeout).await?;
            let now = context.at;
            let changed = tools.change(decide, context).await?;
            self.put_in_force(&tools, Arc::new(changed.after), now)
        });
        waiting.with_timeout(async { change.await? }).await
    }

    /// Waits for the change that is running, but not as long as that change waits for a hanging disk: otherwise all
    /// requested changes would be made when the disk works again, long after their clients have given up.
    async fn lock_changes(&self, store_timeout: Duration) -> Result<tokio::sync::MutexGuard<'_, ()>, StoreError> {
        let limit = store_timeout / 2;
        timeout(limit, self.changing.lock()).await.map_err(|_| StoreError::timeout(limit))
    }

    fn put_in_force(&self, tools: &KeyTools, keys: Arc<Vec<StoredKey>>, now: UnixTime) -> Result<(), KeysError> {
        if let Some(file) = &tools.file
            && keys.iter().any(|key| key.kid == file.read().kid && key.is(KeyState::Active))
        {
            file.sign_with(file.read());
        }
        let issuer = tools.own_issuer(&keys, now).or_else(|error| {
            let error = with_causes(&error);
            tracing::error!(error, "cannot use a signing key; tokens that it signed are rejected");
            tools.own_issuer(&tools.usable(&keys), now)
        })?;
        self.keyring.replace_own(issuer);
        *self.uses_in_force.lock() = uses(&keys, tools, now);
        self.stored.store(keys);
        Ok(())
    }
}

fn uses(keys: &[StoredKey], tools: &KeyTools, now: UnixTime) -> Vec<(String, Use)> {
    keys.iter().map(|key| (key.kid.clone(), tools.use_of(key, now))).collect()
}

fn state_name(key: &StoredKey, tools: &KeyTools, now: UnixTime) -> &'static str {
    match (key.state(), tools.use_of(key, now)) {
        (KeyState::Retired, Use::RefreshOnly) => "refresh-only",
        // It signs, whatever another gateway with another file has made of it.
        (KeyState::Retired, Use::Sign) => "active",
        (state, _) => state.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_change_waits_for_another_half_as_long_as_that_waits() {
        const TIMEOUT: Duration = Duration::from_millis(400);
        let keyring = Arc::new(Keyring::with_a_new_key());
        let keys = OwnKeys::new(None, Vec::new(), keyring, UnixTime::default());
        assert!(keys.lock_changes(Duration::ZERO).await.is_ok(), "no other change runs");
        let _running = keys.changing.lock().await;
        let started = Instant::now();
        let error = keys.lock_changes(TIMEOUT).await.err().map(|error| error.message);
        assert!(started.elapsed() >= TIMEOUT / 2);
        assert!(error.is_some_and(|message| message.contains("within 200ms")));
    }
}
