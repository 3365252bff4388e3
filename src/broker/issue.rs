//! Issues new families, and access tokens of existing ones.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::service::Broker;
use super::token_pair::TokenPair;
use crate::tokens::audit_event::EventContext;
use crate::tokens::bound::Bound;
use crate::tokens::family::{Family, claims_of, refresh_token};
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::ids::{TokenId, to_base62};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// How many bytes an access token can grow when its generation gets more digits.
const GROWTH: usize = 32;

impl Broker {
    /// Creates a family and its first pair of tokens. It is durable when this returns.
    ///
    /// `context.at` is when the login began. A mass revocation since then also ends this login.
    pub async fn issue(&self, login: Login, context: EventContext) -> Result<TokenPair, Reject> {
        let now = context.at;
        let family = self.first_generation(login, now);
        self.check_usable(&family, now)?;
        let issued = self.with_timeout(self.store.issue(family, self.settings.sessions_per_subject, context)).await?;
        let revoked = || {
            let detail = "all tokens of the subject were revoked during the login, or the clock was set back since";
            Reject::new(Reason::LoginCapture, detail)
        };
        self.pair(&issued.ok_or_else(revoked)?, Bound::default(), now)
    }

    /// Rejects a login if the gateway itself would reject its access tokens: they could not even be refreshed.
    pub(super) fn check_usable(&self, family: &Family, now: UnixTime) -> Result<(), Reject> {
        let unusable = |detail| Err(Reject::new(Reason::BadParameter, detail));
        let audience = &self.settings.audience;
        let resources = &self.settings.resources;
        let is_accepted = |aud: &String| audience.contains(aud) || resources.contains(aud);
        if !family.audience.is_empty() && !family.audience.iter().any(is_accepted) {
            let accepted: Vec<_> = audience.iter().chain(resources).map(String::as_str).collect();
            return unusable(format!("aud must include {}", accepted.join(" or ")));
        }
        let max = self.settings.token_size;
        if let Some(len) = beyond(max, self.access_token(family, Bound::default(), now)?.0.len()) {
            return unusable(format!("the access token can have {len} bytes, but limits.token_size is {max}"));
        }
        Ok(())
    }

    pub(super) fn first_generation(&self, login: Login, now: UnixTime) -> Family {
        let lifetimes = &self.settings.lifetimes;
        let absolute = login.absolute.unwrap_or(lifetimes.absolute).min(lifetimes.absolute);
        let family = Family {
            id: TokenId::random(),
            subject: login.subject,
            scope: login.scope,
            audience: login.audience,
            client_id: login.client_id,
            claims: with_confirmation(login.claims, login.bound_to.claim()),
            label: login.label,
            salt: secret::random(),
            generation: 1,
            root: self.roots.newest(),
            rotated_at: now,
            confirmed: 0,
            created_at: begun(now, self.clock.uncertainty()),
            last_used_at: now,
            address: login.address,
            idle: login.idle,
            idle_expiry: now,
            absolute_expiry: now + absolute,
            key_hash: None,
            key_rate: None,
            origin: None,
            grant: None,
            revoked: None,
        };
        Family { idle_expiry: family.next_idle_expiry(lifetimes, now), ..family }
    }

    /// The pair of the family's current generation: its refresh token, which is always the same, and a new access
    /// token. A repeated refresh cannot get the same access token: it may have expired, or its `jti` may be revoked.
    /// `bind`: as for [`Broker::access_token`].
    pub(super) fn pair(&self, family: &Family, bind: Bound, now: UnixTime) -> Result<TokenPair, Reject> {
        let refresh_token = refresh_token::current(family, &self.roots).ok_or_else(|| {
            Reject::new(Reason::Internal, format!("root secret {} is missing from store.secret_file", family.root))
        })?;
        let (access_token, lifetime) = self.access_token(family, bind, now)?;
        let expires = now.as_secs() + lifetime;
        let extra = self.settings.extra_fields;
        Ok(TokenPair {
            success: true,
            access_token,
            refresh_token,
            expires_at: if self.settings.expires_at_milliseconds { expires * 1000 } else { expires },
            token_id: extra.then_some(family.id),
            family: family.id,
            expires_in: extra.then_some(lifetime),
            lifetime,
            scope: family.scope.clone(),
            is_bound: family.bound_to().or(bind).key.is_some(),
        })
    }

    /// The current access token of a family, and its lifetime in seconds. `bind`: what this token alone is bound to, if
    /// the family is not. A client that authenticates may have another key (RFC 9449 section 5) and another certificate
    /// (RFC 8705 section 4) each time.
    pub(super) fn access_token(&self, family: &Family, bind: Bound, now: UnixTime) -> Result<(String, u64), Reject> {
        let (issued, expires) = self.access_window(family, now);
        let cnf = family.bound_to().or(bind).claim();
        let claims = with_confirmation(self.access_claims(family, issued, expires), cnf);
        let signed = self.keyring.keys().own().signing.sign(&claims);
        let access_token = signed.map_err(|error| Reject::new(Reason::Internal, error.to_string()))?;
        Ok((access_token, expires.saturating_sub(now.as_secs())))
    }

    /// `iat` and `exp` in seconds. `exp` is up to `tokens.lifetime_jitter` early, so that clients that logged in
    /// together do not refresh together, and not after the absolute expiry of the family.
    fn access_window(&self, family: &Family, now: UnixTime) -> (u64, u64) {
        let issued = now.as_secs();
        let lifetime = self.settings.lifetimes.access.as_secs();
        let early = part_of(lifetime, self.settings.lifetime_jitter.into(), u16::from_be_bytes(secret::random()));
        let expires = (issued + lifetime - early).min(family.absolute_expiry.as_secs());
        (issued, expires)
    }

    /// Those of the family, and two of this token: `jti`, and one of our own, `rgn`, the generation of the family.
    fn access_claims(&self, family: &Family, issued: u64, expires: u64) -> Map<String, Value> {
        let mut claims = claims_of(family, &self.settings.issuer, &self.settings.audience, issued, expires);
        claims.insert("jti".into(), json!(to_base62(&secret::random::<16>(), 22)));
        claims.insert("rgn".into(), json!(family.generation));
        claims
    }
}

/// The claims of a family with this `cnf`, which each of its access tokens has.
fn with_confirmation(mut claims: Map<String, Value>, cnf: Option<Value>) -> Map<String, Value> {
    if let Some(cnf) = cnf {
        claims.insert("cnf".into(), cnf);
    }
    claims
}

/// How long an access token of `len` bytes can become, if that is beyond `max`.
fn beyond(max: usize, len: usize) -> Option<usize> {
    Some(len + GROWTH).filter(|grown| *grown > max)
}

/// A part of `lifetime` from nothing to `percent`, as `random` is from 0 to its maximum.
fn part_of(lifetime: u64, percent: u64, random: u16) -> u64 {
    u64::from(random) * lifetime * percent / (100 * u64::from(u16::MAX))
}

/// When a login began. Never later than it was, however wrong the clock is: "log out everywhere" must find it.
pub(super) fn begun(now: UnixTime, uncertainty: Duration) -> UnixTime {
    now - uncertainty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_never_dated_later_than_it_was() {
        let now = UnixTime::from_secs(1_000);
        assert_eq!(begun(now, Duration::from_millis(5)).as_millis(), 999_995);
        assert_eq!(begun(now, Duration::ZERO), now);
    }

    #[test]
    fn a_token_may_grow_up_to_the_limit() {
        assert_eq!([8160, 8161].map(|len| beyond(8192, len)), [None, Some(8193)]);
    }

    #[test]
    fn the_part_of_a_lifetime_is_at_most_the_percentage() {
        for (lifetime, percent, random, part) in [
            (900, 5, u16::MAX, 45),
            (900, 5, 0, 0),
            (900, 5, u16::MAX / 3, 15),
            (900, 50, u16::MAX, 450),
            (900, 0, u16::MAX, 0),
        ] {
            assert_eq!(part_of(lifetime, percent, random), part, "{percent} % of {lifetime}, {random}");
        }
    }
}
