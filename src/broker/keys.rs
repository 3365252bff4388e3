//! The gateway's own signing keys: made, rotated, revoked. What is due when, [`schedule`] decides; here it is done.
//!
//! Every change is durable before it is in force, and in force for all workers at once: they share one snapshot. Changes
//! come one after the other, and each runs to its end also when whoever asked for it has gone: with a client, or because
//! the disk is stuck. One that waits for the disk keeps the next from beginning.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::timeout;

use crate::auth::keyring::{Keyring, Own};
use crate::store::{DecideKeys, KeysChanged, Store};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::{SigningKey, generate_pem};
use crate::tokens::jwt::{Algorithm, Issuer, algorithm_name};
use crate::tokens::signing::schedule::{self, MAX_KEYS, Use, use_of};
use crate::tokens::signing::{KeyLifetimes, KeyState, StoredKey, seal};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::secret::Secret;

/// What keys are made, sealed and judged with.
#[derive(Clone)]
pub struct KeyTools {
    pub store: Arc<dyn Store>,
    /// `timeouts.store`
    pub patience: Duration,
    pub roots: Arc<Roots>,
    pub terms: KeyLifetimes,
    /// The terms of our own tokens, with every algorithm that there may be a key for.
    pub policy: Issuer,
}

impl KeyTools {
    /// The keys as a start finds them: the first is made, what is due is done, and what an older root secret seals is
    /// sealed under the newest.
    pub async fn load(&self, now: UnixTime) -> Result<Vec<StoredKey>, String> {
        let found = self.in_time(self.change(Box::new(|keys| keys), now.into())).await?.after;
        let resealed = self.reseal(&found)?;
        let made = match schedule::needs_new_key(&found, &self.terms, now) {
            true => Some(self.make(now).await?),
            false => None,
        };
        let terms = self.terms;
        let advance = move |keys: Vec<StoredKey>| {
            let keys = keys.into_iter().map(|key| resealed_as(key, &resealed)).collect();
            schedule::advance(keys, &terms, made.as_ref(), now)
        };
        Ok(self.in_time(self.change(Box::new(advance), now.into())).await?.after)
    }

    /// The snapshot that these keys make at `now`.
    pub fn own(&self, keys: &[StoredKey], now: UnixTime) -> Result<Own, String> {
        Own::stored(&self.policy, keys, &self.roots, &self.terms, now)
    }

    /// Those that are as they were sealed. A gateway that runs does without the others: one row that somebody changed must
    /// not keep another key's revocation from being enforced.
    fn sound(&self, keys: &[StoredKey]) -> Vec<StoredKey> {
        let is_sound = |key: &&StoredKey| key.sealed.is_empty() || seal::open(key, &self.roots).is_ok();
        keys.iter().filter(is_sound).cloned().collect()
    }

    /// Waits for the store as every caller does: not forever.
    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        timeout(self.patience, answer).await.unwrap_or_else(|_| Err(late(self.patience)))
    }

    async fn change(&self, decide: DecideKeys, occasion: EventContext) -> Result<KeysChanged, String> {
        self.store.change_signing_keys(decide, occasion).await.map_err(|error| error.to_string())
    }

    /// A new key, in no store yet. Making an RSA key takes a while, so it is done where waiting harms nobody.
    async fn make(&self, now: UnixTime) -> Result<StoredKey, String> {
        let algorithm = self.terms.algorithm;
        let making = tokio::task::spawn_blocking(move || make_pem(algorithm));
        let (kid, pem) = making.await.map_err(|error| error.to_string())??;
        let (root, sealed) = seal::seal(&kid, &pem, &self.roots)?;
        Ok(StoredKey {
            kid,
            algorithm: algorithm_name(algorithm).into(),
            root,
            sealed,
            created_at: now,
            activated_at: None,
            retired_at: None,
            revoked_at: None,
            token_life: Duration::ZERO,
        })
    }

    fn reseal(&self, keys: &[StoredKey]) -> Result<Vec<StoredKey>, String> {
        let older = keys.iter().filter(|key| key.root != self.roots.newest() && !key.sealed.is_empty());
        let anew = older.map(|key| {
            let (root, sealed) = seal::seal(&key.kid, &seal::unseal(key, &self.roots)?, &self.roots)?;
            tracing::info!(kid = key.kid, from = key.root, to = root, "sealed a signing key under another root secret");
            Ok(StoredKey { root, sealed, ..key.clone() })
        });
        anew.collect()
    }
}

fn make_pem(algorithm: Algorithm) -> Result<(String, Secret), String> {
    let pem = generate_pem(algorithm)?;
    Ok((SigningKey::from_pem(pem.expose(), algorithm)?.kid, pem))
}

fn resealed_as(key: StoredKey, resealed: &[StoredKey]) -> StoredKey {
    match resealed.iter().find(|anew| anew.kid == key.kid && !key.sealed.is_empty()) {
        Some(anew) => StoredKey { root: anew.root, sealed: anew.sealed.clone(), ..key },
        None => key,
    }
}

/// The keys of a gateway that runs.
pub struct OwnKeys {
    /// `None`: the operator's own key, which is changed by another file and a restart.
    workshop: Option<KeyTools>,
    keyring: Arc<Keyring>,
    /// As they lie in the store.
    known: ArcSwap<Vec<StoredKey>>,
    /// What each was good for when the snapshot in force was made.
    in_force: Mutex<Vec<(String, Use)>>,
    /// Held through a change, from the store to the snapshot, so that no older snapshot follows a newer one.
    changing: tokio::sync::Mutex<()>,
}

/// One key as an operator sees it.
pub struct ShownKey {
    pub kid: String,
    pub algorithm: String,
    pub state: &'static str,
    /// Empty for the operator's own key, of which only the file is known.
    pub stored: Option<StoredKey>,
}

impl OwnKeys {
    pub fn new(workshop: Option<KeyTools>, known: Vec<StoredKey>, keyring: Arc<Keyring>, now: UnixTime) -> Self {
        let in_force = workshop.as_ref().map(|workshop| uses(&known, &workshop.terms, now)).unwrap_or_default();
        OwnKeys {
            workshop,
            keyring,
            known: ArcSwap::from_pointee(known),
            in_force: Mutex::new(in_force),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Does what is due. Looks at what is known only, unless something is.
    pub async fn tick(self: &Arc<Self>, now: UnixTime) -> Result<(), String> {
        let Some(workshop) = &self.workshop else { return Ok(()) };
        let (known, terms) = (self.known.load_full(), workshop.terms);
        let needs_new_key = schedule::needs_new_key(&known, &terms, now);
        if needs_new_key || schedule::advance(known.to_vec(), &terms, None, now) != *known {
            let made = if needs_new_key { Some(workshop.make(now).await?) } else { None };
            let decide = Box::new(move |keys| schedule::advance(keys, &terms, made.as_ref(), now));
            return self.clone().change_in_time(workshop.clone(), decide, now.into()).await;
        }
        if *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) != uses(&known, &terms, now) {
            let _alone = self.alone(workshop).await?;
            return self.put_in_force(workshop, self.known.load_full(), now);
        }
        Ok(())
    }

    /// Has the next key made ready, or, `at_once`, has it sign now: others that check our tokens then see it as soon as they
    /// fetch it, and not before it signs.
    pub async fn rotate(self: Arc<Self>, at_once: bool, occasion: EventContext) -> Result<(), Reject> {
        let now = occasion.at;
        let workshop = self.workshop.clone().ok_or(Reason::KeysFixed)?;
        if self.known.load().len() >= MAX_KEYS {
            let detail =
                format!("{MAX_KEYS} keys are kept already; old ones go when nothing that they signed is of use");
            return Err(Reject::new(Reason::KeysTooMany, detail));
        }
        self.by_hand(workshop, occasion, move |keys, terms, made| schedule::rotate(keys, terms, made, at_once, now))
            .await
    }

    /// Ends a key now and durably. Every token that it signed is refused; `may_refresh`: but not as the Bearer of a refresh.
    pub async fn revoke(self: Arc<Self>, kid: String, may_refresh: bool, occasion: EventContext) -> Result<(), Reject> {
        let now = occasion.at;
        let workshop = self.workshop.clone().ok_or(Reason::KeysFixed)?;
        if !self.known.load().iter().any(|key| key.kid == kid) {
            return Err(Reason::KeyNotFound.into());
        }
        let revoke = move |keys, terms: &KeyLifetimes, made: &StoredKey| {
            schedule::revoke(keys, terms, made, &kid, may_refresh, now)
        };
        self.by_hand(workshop, occasion, revoke).await
    }

    /// The newest first, and when the next begins to sign.
    pub fn list(&self, now: UnixTime) -> (Vec<ShownKey>, Option<UnixTime>) {
        let Some(workshop) = &self.workshop else {
            let signing = self.keyring.keys().own().signing.clone();
            let algorithm = algorithm_name(signing.algorithm).to_owned();
            let fixed = ShownKey { kid: signing.kid.clone(), algorithm, state: "active", stored: None };
            return (vec![fixed], None);
        };
        let shown = |key: &StoredKey| ShownKey {
            kid: key.kid.clone(),
            algorithm: key.algorithm.clone(),
            state: match (key.state(), use_of(key, &workshop.terms, now)) {
                (KeyState::Retired, Use::RefreshOnly) => "refresh-only",
                (state, _) => state.as_str(),
            },
            stored: Some(key.clone()),
        };
        let known = self.known.load();
        (known.iter().map(shown).collect(), schedule::next_rotation(&known, &workshop.terms))
    }

    /// Seconds since the active key began to sign, and seconds until the next one does; 0 if that is overdue. `None` if
    /// nobody rotates it.
    pub fn ages(&self, now: UnixTime) -> Option<(f64, f64)> {
        let workshop = self.workshop.as_ref()?;
        let known = self.known.load();
        let since = schedule::active(&known)?.activated_at?;
        let next = schedule::next_rotation(&known, &workshop.terms)?;
        Some((now.since(since).as_secs_f64(), next.since(now).as_secs_f64()))
    }

    /// A change that somebody asked for.
    async fn by_hand(
        self: Arc<Self>,
        workshop: KeyTools,
        occasion: EventContext,
        decide: impl Fn(Vec<StoredKey>, &KeyLifetimes, &StoredKey) -> Vec<StoredKey> + Send + 'static,
    ) -> Result<(), Reject> {
        let made = async {
            let (made, terms) = (workshop.make(occasion.at).await?, workshop.terms);
            let decide = Box::new(move |keys| decide(keys, &terms, &made));
            self.change_in_time(workshop.clone(), decide, occasion).await
        };
        made.await.map_err(|fault: String| {
            tracing::error!(fault, "the signing keys were not changed");
            Reject::new(Reason::StoreUnavailable, fault)
        })
    }

    /// It has a task of its own: whoever goes away in the middle of it, or waits no longer, must not leave a key that is
    /// revoked in the store and good everywhere else.
    async fn change_in_time(
        self: Arc<Self>,
        workshop: KeyTools,
        decide: DecideKeys,
        occasion: EventContext,
    ) -> Result<(), String> {
        let waiting = workshop.clone();
        let change = tokio::spawn(async move {
            let _alone = self.alone(&workshop).await?;
            let now = occasion.at;
            let changed = workshop.change(decide, occasion).await?;
            self.put_in_force(&workshop, Arc::new(changed.after), now)
        });
        waiting.in_time(async { change.await.unwrap_or_else(|error| Err(error.to_string())) }).await
    }

    /// The turn to change keys. Nobody queues behind a change that waits for a stuck disk: what was asked for meanwhile
    /// would all be done when the disk works again, long after whoever asked has given up.
    async fn alone(&self, workshop: &KeyTools) -> Result<tokio::sync::MutexGuard<'_, ()>, String> {
        let limit = workshop.patience / 2;
        timeout(limit, self.changing.lock()).await.map_err(|_| late(limit))
    }

    fn put_in_force(&self, workshop: &KeyTools, keys: Arc<Vec<StoredKey>>, now: UnixTime) -> Result<(), String> {
        self.keyring.replace_own(workshop.own(&keys, now).or_else(|fault| {
            tracing::error!(fault, "a signing key cannot be used, and what it signed is refused");
            workshop.own(&workshop.sound(&keys), now)
        })?);
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = uses(&keys, &workshop.terms, now);
        self.known.store(keys);
        Ok(())
    }
}

fn late(patience: Duration) -> String {
    format!("no answer within {patience:?}: is the disk of the database stuck?")
}

fn uses(keys: &[StoredKey], terms: &KeyLifetimes, now: UnixTime) -> Vec<(String, Use)> {
    keys.iter().map(|key| (key.kid.clone(), use_of(key, terms, now))).collect()
}
