//! From the handle in a browser's cookie to what it stands for: the claims of its family, as for an API key.
//!
//! A handle that was read from the store is good for as long as an access token lives, so that revocations, which are
//! kept as long, also end it. Requests read it again after half of that time, and `stream_reads` the handles of open
//! streams. While the store does not respond, the second half is left.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::auth::login_providers::LoginProviders;
use crate::auth::store_reads::{Find, StoreReads, StoredCredentialSettings};
use crate::store::{ProviderLogin, Store};
use crate::tokens::family::handle::PresentedHandle;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::family::{Family, claims_of};
use crate::tokens::jwt::{Issuer, SignedInAt, VerifiedToken};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// How often, at most, the store learns of the use of a login: its idle time counts from there.
const USE_RESOLUTION: Duration = Duration::from_mins(1);

/// How often a login can change at its provider while one request reads it. A refresh changes it twice.
const MAX_CHANGES: usize = 6;

pub type FoundLogin = Option<(Family, ProviderLogin)>;
pub type Refreshing = Pin<Box<dyn Future<Output = Refreshed> + Send>>;

/// Refreshes a login at its provider, when that is due.
pub trait RefreshLogins: Send + Sync {
    /// Waits for the provider only if the login is worth nothing without it.
    fn refresh(&self, family: Family, login: ProviderLogin) -> Refreshing;
}

/// What became of a login that was due.
#[derive(Debug)]
pub enum Refreshed {
    /// Good as it is, until this time.
    Good(UnixTime),
    /// As [`Refreshed::Good`], and the provider fails.
    Stale(UnixTime),
    /// To be read again.
    Changed,
    /// Why it ended.
    Ended(&'static str),
    /// The provider does not respond, and what it said last is too old.
    Unavailable(String),
}

/// Who reads a login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Request,
    Stream,
}

/// Finds logins by their handles in the store.
pub struct Handles {
    settings: StoredCredentialSettings,
    roots: Arc<Roots>,
    pub providers: Arc<LoginProviders>,
    /// `None` if a look-up must not change anything.
    effects: Option<Effects>,
    reads: StoreReads<(Family, ProviderLogin)>,
}

struct Effects {
    store: Arc<dyn Store>,
    refresh: Arc<dyn RefreshLogins>,
}

/// Why a presented handle is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHandle {
    Unknown,
    Forged,
    OtherProvider,
    Revoked,
    Expired,
    Ended(&'static str),
}

impl BadHandle {
    /// Returns true if the client may have guessed.
    pub(super) fn is_guess(self) -> bool {
        matches!(self, BadHandle::Unknown | BadHandle::Forged)
    }

    /// Returns true if the same handle can be good on another route.
    pub(super) fn is_of_other_route(self) -> bool {
        self == BadHandle::OtherProvider
    }

    /// For the log. All bad handles have the same response.
    pub(super) fn reject(self) -> Reject {
        let detail = match self {
            BadHandle::Unknown => "unknown session",
            BadHandle::Forged => "the handle was not created for this session",
            BadHandle::OtherProvider => "the user signed in at another provider",
            BadHandle::Revoked => "the session was revoked",
            BadHandle::Expired => "the session expired",
            BadHandle::Ended(why) => why,
        };
        Reject::new(Reason::BadSession, detail)
    }
}

/// A login that is good now.
pub(super) struct GoodLogin {
    family: Family,
    at: Arc<SignedInAt>,
    /// See [`ProviderLogin::version`].
    version: u64,
    /// Until when requests use it without reading it again.
    pub(super) usable_until: UnixTime,
    /// Its provider fails.
    pub(super) is_stale: bool,
}

impl Handles {
    /// `find`: looks a login up without changing anything. `providers`: where the logins that count began.
    pub fn new(
        settings: StoredCredentialSettings,
        roots: Arc<Roots>,
        find: Arc<Find<(Family, ProviderLogin)>>,
        providers: Arc<LoginProviders>,
    ) -> Self {
        let reads = StoreReads::new("logins", settings.timeout, find);
        Handles { settings, roots, providers, effects: None, reads }
    }

    /// Records in the store when logins are used, and refreshes them.
    pub fn of_store(
        settings: StoredCredentialSettings,
        roots: Arc<Roots>,
        store: Arc<dyn Store>,
        refresh: Arc<dyn RefreshLogins>,
    ) -> Self {
        let reading = store.clone();
        let find = Arc::new(move |id| reading.provider_login(id));
        let handles = Handles::new(settings, roots, find, Arc::default());
        Handles { effects: Some(Effects { store, refresh }), ..handles }
    }

    pub fn without_effects(&self) -> Self {
        Handles {
            settings: self.settings.clone(),
            roots: self.roots.clone(),
            providers: self.providers.clone(),
            effects: None,
            reads: self.reads.with_own_counts(),
        }
    }

    /// Reads the login of a handle, and refreshes it if that is due. The outer
    /// error: it cannot be read.
    pub(super) async fn read(
        &self,
        presented: &PresentedHandle,
        provider: &str,
        now: UnixTime,
    ) -> Result<Result<GoodLogin, BadHandle>, Reject> {
        let checked = |found| check(found, presented, provider, &self.roots, now);
        self.read_checked(presented.id, Reader::Request, now, checked).await
    }

    /// As [`Handles::read`], for a login that has open streams.
    pub(super) async fn read_for_stream(
        &self,
        id: TokenId,
        now: UnixTime,
    ) -> Result<Result<GoodLogin, BadHandle>, Reject> {
        self.read_checked(id, Reader::Stream, now, |found| live(found.ok_or(BadHandle::Unknown)?, now)).await
    }

    async fn read_checked(
        &self,
        id: TokenId,
        reader: Reader,
        now: UnixTime,
        check: impl Fn(FoundLogin) -> Result<(Family, ProviderLogin), BadHandle>,
    ) -> Result<Result<GoodLogin, BadHandle>, Reject> {
        for _ in 0..MAX_CHANGES {
            let found = match reader {
                Reader::Request => self.reads.read(id, Instant::now()).await?,
                Reader::Stream => self.reads.read_for_stream(id).await?,
            };
            let (family, login) = match check(found) {
                Ok(found) => found,
                Err(bad) => return Ok(Err(bad)),
            };
            let at = Arc::new(place_of(&family, &login));
            if !self.providers.accept(&at) {
                return Ok(Err(BadHandle::Ended("its provider was removed, or has another issuer")));
            }
            // An open stream is no request, and does not move the idle time.
            if reader == Reader::Request {
                self.record_use(&family, &login, now);
            }
            let version = login.version;
            let due = login.due;
            let good = |family: Family, until: UnixTime, is_stale| {
                let usable_until = until.min(now + self.settings.lifetime / 2).min(family.idle_expiry);
                Ok(Ok(GoodLogin { family, at, version, usable_until, is_stale }))
            };
            let effects = match &self.effects {
                Some(effects) if due <= now => effects,
                _ => return good(family, due.max(now), false),
            };
            match effects.refresh.refresh(family.clone(), login).await {
                Refreshed::Good(until) => return good(family, until, false),
                Refreshed::Stale(until) => return good(family, until, true),
                Refreshed::Changed => {}
                Refreshed::Ended(why) => return Ok(Err(BadHandle::Ended(why))),
                Refreshed::Unavailable(detail) => return Err(Reject::new(Reason::ProviderUnavailable, detail)),
            }
        }
        Err(Reject::new(Reason::ProviderUnavailable, "the login changes faster than it can be read"))
    }

    /// What the handle stands for at `now`.
    pub(super) fn stand_for(&self, login: &GoodLogin, policy: &Arc<Issuer>, now: UnixTime) -> VerifiedToken {
        let family = &login.family;
        let expires = (now + self.settings.lifetime).min(family.absolute_expiry);
        let issued = family.created_at.as_secs();
        let ends = expires.as_secs();
        let claims = claims_of(family, &policy.issuer, &self.settings.audience, issued, ends);
        VerifiedToken::of_handle(family, &login.at, login.version, policy, claims, expires)
    }

    /// The store has queued the changes when this returns. A lost one does no harm.
    fn record_use(&self, family: &Family, login: &ProviderLogin, now: UnixTime) {
        let Some(Effects { store, .. }) = &self.effects else { return };
        if !login.claimed {
            drop(store.claim_login(family.id, now));
        }
        if family.last_used_at + USE_RESOLUTION <= now {
            drop(store.used(family.id, now));
        }
    }
}

/// Checks what the store has of a handle. The MAC first, so that only its owner can learn more.
fn check(
    found: FoundLogin,
    presented: &PresentedHandle,
    provider: &str,
    roots: &Roots,
    now: UnixTime,
) -> Result<(Family, ProviderLogin), BadHandle> {
    let (family, login) = found.ok_or(BadHandle::Unknown)?;
    if !presented.is_genuine(&family, roots) {
        return Err(BadHandle::Forged);
    }
    let (family, login) = live((family, login), now)?;
    if login.provider == provider { Ok((family, login)) } else { Err(BadHandle::OtherProvider) }
}

fn live(found: (Family, ProviderLogin), now: UnixTime) -> Result<(Family, ProviderLogin), BadHandle> {
    match found.0.revoked {
        Some(_) => Err(BadHandle::Revoked),
        None if !found.0.is_live(now) => Err(BadHandle::Expired),
        None => Ok(found),
    }
}

fn place_of(family: &Family, login: &ProviderLogin) -> SignedInAt {
    let issuer = family.origin.as_ref().map_or("", |origin| &*origin.issuer);
    SignedInAt { provider: login.provider.as_str().into(), issuer: issuer.into() }
}

/// Without any login.
impl Default for Handles {
    fn default() -> Self {
        let settings =
            StoredCredentialSettings { audience: Vec::new(), lifetime: Duration::ZERO, timeout: Duration::ZERO };
        Handles::new(settings, Arc::new(Roots::none()), Arc::new(|_| Box::pin(async { Ok(None) })), Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreFuture;
    use crate::tokens::credential_kind::CredentialKind;
    use crate::tokens::family::{FamilyOrigin, RevokeReason, RevokedAt, handle};
    use crate::types::secret::Secret;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const HOUR: Duration = Duration::from_hours(1);
    const ISSUER: &str = "https://login.example";

    fn roots() -> Roots {
        Roots::new((1, Secret::new(vec![7; 32])), vec![])
    }

    fn login() -> (Family, ProviderLogin) {
        let origin = FamilyOrigin { issuer: ISSUER.into(), subject: "alice".into(), session: None, dated: NOW };
        let family = Family { absolute_expiry: NOW + HOUR, origin: Some(origin), ..Family::sample(NOW - HOUR) };
        let login = ProviderLogin {
            provider: "main".into(),
            root: 1,
            sealed: Vec::new(),
            version: 0,
            due: UnixTime::MAX,
            claimed: true,
        };
        (family, login)
    }

    fn presented(family: &Family) -> PresentedHandle {
        PresentedHandle::parse(&handle::of(family, &roots()).expect("root 1 is known")).expect("well formed")
    }

    #[test]
    fn only_a_live_login_with_its_handle_is_good() {
        let (family, login) = login();
        let presented = presented(&family);
        let revoked = Some(RevokedAt { at: NOW, reason: RevokeReason::Logout });
        let checked = |found, provider| check(found, &presented, provider, &roots(), NOW).map(|(family, _)| family.id);
        let with = |family: Family| Some((family, login.clone()));
        assert_eq!(checked(with(family.clone()), "main"), Ok(family.id));
        for (found, provider, expected) in [
            (None, "main", BadHandle::Unknown),
            (with(Family { salt: [9; 32], revoked, ..family.clone() }), "main", BadHandle::Forged),
            (with(Family { revoked, ..family.clone() }), "main", BadHandle::Revoked),
            (with(Family { absolute_expiry: NOW, ..family.clone() }), "main", BadHandle::Expired),
            (with(Family { idle_expiry: NOW, ..family.clone() }), "main", BadHandle::Expired),
            (with(family.clone()), "other", BadHandle::OtherProvider),
        ] {
            assert_eq!(checked(found, provider), Err(expected));
            assert_eq!(expected.is_guess(), matches!(expected, BadHandle::Unknown | BadHandle::Forged));
            assert_eq!(expected.reject().reason, Reason::BadSession);
        }
    }

    #[tokio::test]
    async fn a_login_is_read_again_after_half_a_lifetime_or_when_due() {
        for (due, expected) in [(UnixTime::MAX, NOW + HOUR), (NOW + HOUR / 4, NOW + HOUR / 4), (NOW - HOUR, NOW)] {
            let (family, login) = login();
            let found = (family.clone(), ProviderLogin { due, ..login });
            let settings = StoredCredentialSettings { audience: vec!["a".into()], lifetime: 2 * HOUR, timeout: HOUR };
            let find = move |_| -> StoreFuture<FoundLogin> { Box::pin(std::future::ready(Ok(Some(found.clone())))) };
            let providers = Arc::new(LoginProviders::default());
            let handles = Handles::new(settings, Arc::new(roots()), Arc::new(find), providers.clone());
            let ended = handles.read(&presented(&family), "main", NOW).await;
            assert!(matches!(ended, Ok(Err(BadHandle::Ended(_)))), "its provider is not configured");
            providers.replace(vec![SignedInAt { provider: "main".into(), issuer: ISSUER.into() }]);
            let read = handles.read(&presented(&family), "main", NOW).await;
            let good = read.ok().and_then(Result::ok).expect("a good login");
            assert_eq!(good.usable_until, expected);
            let policy = VerifiedToken::with_subject("x".into()).policy().clone();
            let token = handles.stand_for(&good, &policy, NOW);
            assert_eq!(
                (token.expires, token.family, token.provider.as_ref().map(|at| &*at.provider)),
                (NOW + HOUR, Some(family.id), Some("main"))
            );
            assert!(token.own && token.kind == CredentialKind::Handle && token.claims["aud"] == "a");
        }
    }
}
