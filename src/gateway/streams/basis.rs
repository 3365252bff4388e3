//! The tokens that a stream depends on: the one that opened it, and a newer one of the same family that carries it on.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::introspected_tokens::{IntrospectedTokens, StreamHold};
use crate::auth::keyring::Keyring;
use crate::auth::login_providers::LoginProviders;
use crate::auth::renewals::{FamilyWatch, Renewals};
use crate::auth::revocations::Revocations;
use crate::auth::token_cache::CachedToken;
use crate::gateway::authorize::check_rights;
use crate::gateway::route::Route;
use crate::gateway::streams::reroute::{ActiveRoutes, Opening};
use crate::protocols::tls::PeerCertificate;
use crate::store::Freshness;
use crate::tokens::credential_kind::CredentialKind;
use crate::tokens::jwt::Validity;
use crate::tokens::jwt::verify::{is_still_valid, verify};
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::Reason;
use crate::types::step::StepReporter;

/// Everything that can end a token.
#[derive(Clone)]
pub struct TokenChecks {
    pub clock: Arc<dyn Clock>,
    pub revocations: Arc<Revocations>,
    pub keyring: Arc<Keyring>,
    pub renewals: Arc<Renewals>,
    pub introspected_tokens: Arc<IntrospectedTokens>,
    pub login_providers: Arc<LoginProviders>,
    pub routes: Arc<ActiveRoutes>,
    /// `None`: this gateway is alone, and knows every revocation.
    pub freshness: Option<Arc<Freshness>>,
}

impl TokenChecks {
    /// Returns true if revocations may be missing here.
    pub(super) fn is_stale(&self) -> bool {
        self.freshness.as_ref().is_some_and(|freshness| freshness.is_stale())
    }

    fn serves_stale(&self) -> bool {
        self.freshness.as_ref().is_none_or(|freshness| freshness.serves_stale)
    }

    /// Grows when the rights of a token change, or the gateway has read that one is not good any more.
    pub(super) fn changed_rights(&self) -> u64 {
        self.renewals.changes() + self.introspected_tokens.changes()
    }
}

/// The token that a stream was opened with.
#[derive(Clone)]
pub struct HeldToken {
    pub cached: Arc<CachedToken>,
    /// Its rules apply until a reload replaces them.
    pub route: Arc<Route>,
}

/// What a stream was opened with, and ends with.
#[derive(Clone, Default)]
pub struct Held {
    /// `None` for a stream without a token, as on a public route.
    pub token: Option<HeldToken>,
    /// The certificate of the client.
    pub certificate: Option<Arc<PeerCertificate>>,
}

pub(super) struct StreamBasis {
    token: Option<TokenBasis>,
    certificate: Option<Arc<PeerCertificate>>,
    /// `None`: it does not follow the routes.
    opening: Option<Opening>,
    /// [`ActiveRoutes::changes`] when the route was last found. `None` before the first time.
    routes_checked: Option<u64>,
}

impl StreamBasis {
    pub(super) fn on(held: &Held, opening: Option<Opening>, checks: &TokenChecks) -> Self {
        let token = held.token.as_ref().map(|token| TokenBasis::on(token, checks));
        StreamBasis { token, certificate: held.certificate.clone(), opening, routes_checked: None }
    }

    /// From now on, it follows the routes.
    pub(super) fn follow_routes(&mut self, opening: Opening) {
        self.opening = Some(opening);
        self.routes_checked = None;
    }

    /// When the current token or the certificate expires.
    pub(super) fn deadline(&self) -> UnixTime {
        let of_token = self.token.as_ref().map_or(UnixTime::MAX, TokenBasis::deadline);
        self.certificate.as_ref().map_or(of_token, |certificate| of_token.min(certificate.end()))
    }

    /// Returns why the stream must end, if it must.
    pub(super) fn check(&mut self, checks: &TokenChecks, now: UnixTime) -> Result<(), Reason> {
        if self.certificate.as_ref().is_some_and(|certificate| certificate.check(now).is_err()) {
            return Err(Reason::CertificateRevoked);
        }
        // Before the token, which must meet the rules of the new route.
        let changes = checks.routes.changes();
        if self.routes_checked != Some(changes) {
            self.find_route(checks)?;
            self.routes_checked = Some(changes);
        }
        self.token.as_mut().map_or(Ok(()), |token| token.check(checks, now))
    }

    /// Finds the route again. Also when the stream begins: a reload may have replaced the routes since its request
    /// came.
    fn find_route(&mut self, checks: &TokenChecks) -> Result<(), Reason> {
        let (Some(opening), Some(routes)) = (&self.opening, checks.routes.table()) else { return Ok(()) };
        let held = self.token.as_ref().map(|token| (&*token.opened_by, &*token.opened_on));
        let route = opening.find_route(&routes, held, self.certificate.as_deref())?;
        if let Some(token) = &mut self.token {
            token.serves_stale = route.serves_stale().unwrap_or(checks.serves_stale());
            token.route = route;
            token.rights_checked = None;
        }
        Ok(())
    }
}

pub(super) struct TokenBasis {
    opened_by: Arc<CachedToken>,
    /// The route that accepted it.
    opened_on: Arc<Route>,
    /// The newest token of the family, seen when the one before it expired.
    carried_by: Option<Arc<CachedToken>>,
    /// Revision of the keyring at which the keys of both tokens were good.
    key_revision: u64,
    /// Only for the gateway's own tokens: tokens of other issuers belong to no family.
    renewal: Option<FamilyWatch>,
    /// Only for opaque tokens: how long the newest answer of the issuer holds.
    introspected: Option<StreamHold>,
    /// Since the last reload.
    route: Arc<Route>,
    /// [`TokenChecks::changed_rights`] when the rights of the token were last checked. `None` before the first time.
    rights_checked: Option<u64>,
    /// The stream goes on while revocations may be missing here.
    serves_stale: bool,
}

impl TokenBasis {
    pub(super) fn on(held: &HeldToken, checks: &TokenChecks) -> Self {
        let token = &held.cached;
        TokenBasis {
            opened_by: token.clone(),
            opened_on: held.route.clone(),
            carried_by: None,
            key_revision: token.key_revision(),
            renewal: token.token.family.map(|family| checks.renewals.watch(family, token)),
            introspected: token.introspected.as_ref().map(|introspected| introspected.held_by_stream()),
            route: held.route.clone(),
            rights_checked: None,
            serves_stale: held.route.serves_stale().unwrap_or(checks.serves_stale()),
        }
    }

    /// When the current token expires.
    pub(super) fn deadline(&self) -> UnixTime {
        self.introspected.as_ref().map_or(self.current().token.expires, |introspected| introspected.until())
    }

    fn current(&self) -> &Arc<CachedToken> {
        self.carried_by.as_ref().unwrap_or(&self.opened_by)
    }

    /// Returns why the stream must end, if it must. Costs three comparisons and four atomic loads while nothing has
    /// moved.
    pub(super) fn check(&mut self, checks: &TokenChecks, now: UnixTime) -> Result<(), Reason> {
        match &self.introspected {
            Some(introspected) => introspected.check(now)?,
            None if now >= self.deadline() => self.renew(now)?,
            None => {}
        }
        if self.opened_by.provider.as_ref().is_some_and(|at| !checks.login_providers.accept(at)) {
            return Err(Reason::BadSession);
        }
        // The token that opened the stream counts to the end: an operator who revokes it means the stream, too.
        for token in self.carried_by.iter().chain([&self.opened_by]) {
            token.check_revocation(&checks.revocations).map_err(|reject| reject.reason)?;
        }
        // After the look-up, as for a request.
        if !self.serves_stale && checks.is_stale() {
            return Err(Reason::RevocationsStale);
        }
        // Read before the keys: if they are swapped meanwhile, the next check sees the newer ones.
        let key_revision = checks.keyring.revision();
        if self.key_revision != key_revision {
            self.check_keys(checks, now)?;
            self.key_revision = key_revision;
        }
        // Read before the token, for the same reason.
        let changed_rights = checks.changed_rights();
        if self.rights_checked != Some(changed_rights) {
            self.check_rights()?;
            self.rights_checked = Some(changed_rights);
        }
        Ok(())
    }

    /// Checks what is known of the token now by the rules of the route, as for a new request.
    fn check_rights(&self) -> Result<(), Reason> {
        let newest = match &self.introspected {
            Some(introspected) => Some(introspected.newest_token()),
            None => self.newest_of_family()?.map(|known| known.token.clone()),
        };
        let token = newest.as_ref().unwrap_or(&self.opened_by.token);
        if !self.route.enforce {
            // By a reload: a new request would only be reported.
            return Ok(());
        }
        let checked = self.route.audience().check(token).and_then(|()| check_rights(&self.route, token));
        checked.map_err(|reject| reject.reason)
    }

    fn newest_of_family(&self) -> Result<Option<Arc<CachedToken>>, Reason> {
        self.renewal.as_ref().map_or(Ok(None), FamilyWatch::newest)
    }

    /// Switches to the newest token of the family.
    fn renew(&mut self, now: UnixTime) -> Result<(), Reason> {
        let newest = self.newest_of_family().ok().flatten().filter(|token| now < token.token.expires);
        let newest = newest.ok_or(Reason::Expired)?;
        // The rights of this one count from now on.
        self.rights_checked = None;
        if newest.key_revision() != self.key_revision {
            // Matches no keyring, so that the keys of both tokens are checked again.
            self.key_revision = 0;
        }
        self.carried_by = Some(newest);
        Ok(())
    }

    /// Checks the keys of both tokens after a key was removed or an issuer's terms have changed.
    fn check_keys(&self, checks: &TokenChecks, now: UnixTime) -> Result<(), Reason> {
        let issuers = &checks.keyring.keys().issuers;
        // Expiry is checked by `check`.
        let validity = Validity::ExpiredUpTo(Duration::MAX);
        for token in self.carried_by.iter().chain([&self.opened_by]) {
            if is_still_valid(&token.token, issuers) {
                continue;
            }
            if token.kind == CredentialKind::Opaque {
                // Other settings of the issuer apply to its next answer.
                let is_known = issuers.iter().any(|issuer| issuer.policy.issuer == token.token.issuer);
                return if is_known { Ok(()) } else { Err(Reason::UnknownIssuer) };
            }
            let verified = verify(&token.text, issuers, now, validity, StepReporter::OFF).map(|_| ());
            end_after(verified.map_err(|reject| reject.reason), Arc::ptr_eq(token, self.current()))?;
        }
        Ok(())
    }
}

/// Returns why the stream must end after one of its tokens was verified again.
fn end_after(verified: Result<(), Reason>, is_current: bool) -> Result<(), Reason> {
    match verified {
        // A clock that was set back ends no stream.
        Ok(()) | Err(Reason::NotYetValid) => Ok(()),
        // A key is deleted when its last token has expired. Another token carries the stream by then.
        Err(reason) if is_current || reason == Reason::KeyRevoked => Err(reason),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
impl TokenChecks {
    /// Of a gateway that is alone and has revoked nothing, for tests of other modules.
    pub(in crate::gateway) fn alone() -> Self {
        TokenChecks {
            clock: Arc::new(crate::types::clock::SystemClock),
            revocations: Arc::new(Revocations::new()),
            keyring: Arc::new(Keyring::with_a_new_key()),
            renewals: Arc::default(),
            introspected_tokens: Arc::default(),
            login_providers: Arc::default(),
            routes: Arc::default(),
            freshness: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::OnStale;
    use crate::tokens::jwt::VerifiedToken;
    use crate::types::boot_time::BootTime;
    use crate::types::clock::Uptime;
    use crate::types::ids::TokenId;

    const NOW: UnixTime = UnixTime::from_secs(1_000);
    const MILLISECOND: Duration = Duration::from_millis(1);
    const FAMILY: TokenId = TokenId::from_bytes([7; 16]);

    fn token(expires: UnixTime, key_revision: u64) -> Arc<CachedToken> {
        let mut token = VerifiedToken::with_subject("alice".into());
        (token.expires, token.family) = (expires, Some(FAMILY));
        Arc::new(CachedToken::new("a token", token, Vec::new(), key_revision))
    }

    /// A stream of key revision 3 with an expired token. Its family has this newer token.
    fn expired(newer: &Arc<CachedToken>) -> TokenBasis {
        let renewals = Arc::new(Renewals::default());
        let renewal = Some(renewals.watch(FAMILY, newer));
        renewals.record(FAMILY, newer, Uptime::from_secs(0));
        TokenBasis {
            opened_by: token(NOW, 3),
            opened_on: Arc::new(Route::everything()),
            carried_by: None,
            key_revision: 3,
            renewal,
            introspected: None,
            route: Arc::new(Route::everything()),
            rights_checked: None,
            serves_stale: false,
        }
    }

    #[test]
    fn a_newer_token_carries_a_stream_until_it_expires_itself() {
        for (expires, expected) in [(NOW, Err(Reason::Expired)), (NOW + MILLISECOND, Ok(()))] {
            let newer = token(expires, 3);
            let mut basis = expired(&newer);
            assert_eq!(basis.renew(NOW), expected);
            assert_eq!(Arc::ptr_eq(basis.current(), &newer), expected.is_ok());
        }
    }

    /// The keyring begins at revision 1, so that 0 matches none.
    #[test]
    fn the_keys_of_a_newer_token_are_checked_if_they_have_moved() {
        for (verified_in, left) in [(3, 3), (2, 0), (4, 0)] {
            let mut basis = expired(&token(UnixTime::MAX, verified_in));
            assert_eq!((basis.renew(NOW), basis.key_revision), (Ok(()), left));
        }
        assert_ne!(TokenChecks::alone().keyring.revision(), 0);
    }

    #[test]
    fn a_stream_outlives_the_key_of_a_token_that_carries_it_no_more() {
        let unknown = Err(Reason::UnknownKey);
        let revoked = Err(Reason::KeyRevoked);
        for (verified, earlier, current) in [
            (Ok(()), Ok(()), Ok(())),
            (Err(Reason::NotYetValid), Ok(()), Ok(())),
            (unknown, Ok(()), unknown),
            (revoked, revoked, revoked),
        ] {
            assert_eq!([end_after(verified, false), end_after(verified, true)], [earlier, current], "{verified:?}");
        }
    }

    #[test]
    fn stale_revocations_end_streams_unless_they_are_served() {
        for (of_store, of_route, ends) in
            [(false, None, true), (false, Some(true), false), (true, None, false), (true, Some(false), true)]
        {
            let freshness = Arc::new(Freshness::new(Duration::from_secs(10), of_store, false));
            let checks = TokenChecks { freshness: Some(freshness.clone()), ..TokenChecks::alone() };
            let cached = token(UnixTime::MAX, checks.keyring.revision());
            let on_stale = of_route.map(|serves| if serves { OnStale::Serve } else { OnStale::Deny });
            let route = Arc::new(Route { on_stale, ..Route::everything() });
            let mut basis = TokenBasis::on(&HeldToken { cached, route }, &checks);
            let expected = if ends { Err(Reason::RevocationsStale) } else { Ok(()) };
            assert_eq!(basis.check(&checks, NOW), expected, "{of_store} {of_route:?}");
            freshness.completed(BootTime::now(), false);
            assert_eq!(basis.check(&checks, NOW), Ok(()), "{of_store} {of_route:?}");
        }
    }
}
