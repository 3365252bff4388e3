//! Issuing: new families, and the access tokens of any family.

use serde_json::{Map, Value, json};

use super::{Broker, TokenPair};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::{Family, refresh_token};
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::ids::{TokenId, to_base62};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Bytes that an access token may grow by when its generation has more digits.
const GROWTH: usize = 32;

impl Broker {
    /// Makes a family and its first pair of tokens. Durable when it returns.
    pub async fn issue(&self, login: Login, occasion: EventContext) -> Result<TokenPair, Reject> {
        let now = occasion.at;
        let family = self.usable_family(login, now)?;
        let family = self.in_time(self.store.issue(family, self.settings.sessions_per_subject, occasion)).await?;
        self.pair(&family, now)
    }

    /// As [`Broker::issue`], for somebody whose login was said to be good when the revocations up to `known` were enforced. A
    /// mass revocation since then was meant for this login, too.
    pub async fn issue_begun(&self, login: Login, known: u64, occasion: EventContext) -> Result<TokenPair, Reject> {
        let now = occasion.at;
        let family = self.usable_family(login, now)?;
        let issued =
            self.in_time(self.store.issue_begun(family, self.settings.sessions_per_subject, known, occasion)).await?;
        let overtaken = || Reject::new(Reason::LoginCapture, "everything of the subject was revoked meanwhile");
        self.pair(&issued.ok_or_else(overtaken)?, now)
    }

    fn usable_family(&self, login: Login, now: UnixTime) -> Result<Family, Reject> {
        let family = self.first_generation(login, now);
        self.check_usable(&family, now)?;
        Ok(family)
    }

    /// An access token that the gateway itself would refuse is good for nothing, not even for its refresh.
    fn check_usable(&self, family: &Family, now: UnixTime) -> Result<(), Reject> {
        let unusable = |fault| Err(Reject::new(Reason::BadParameter, fault));
        let accepted = &self.settings.audience;
        if !family.audience.is_empty() && !family.audience.iter().any(|aud| accepted.contains(aud)) {
            return unusable(format!("aud has to name {} too", accepted.join(" or ")));
        }
        let (len, most) = (self.pair(family, now)?.access_token.len() + GROWTH, self.settings.token_size);
        if len > most {
            return unusable(format!("the access token would have up to {len} bytes, and limits.token_size is {most}"));
        }
        Ok(())
    }

    fn first_generation(&self, login: Login, now: UnixTime) -> Family {
        let lifetimes = &self.settings.lifetimes;
        let absolute = login.absolute.unwrap_or(lifetimes.absolute).min(lifetimes.absolute);
        let family = Family {
            id: TokenId::random(),
            subject: login.subject,
            scope: login.scope,
            audience: login.audience,
            client_id: login.client_id,
            claims: login.claims,
            label: login.label,
            salt: secret::random(),
            generation: 1,
            root: self.roots.newest(),
            rotated_at: now,
            confirmed: 0,
            created_at: now,
            last_used_at: now,
            address: login.address,
            idle: login.idle,
            idle_expiry: now,
            absolute_expiry: now + absolute,
            revoked: None,
        };
        Family { idle_expiry: family.next_idle_expiry(lifetimes, now), ..family }
    }

    /// The pair of the family's present generation: its refresh token, the same each time, and a fresh access token.
    pub(super) fn pair(&self, family: &Family, now: UnixTime) -> Result<TokenPair, Reject> {
        let refresh_token = refresh_token::current(family, &self.roots)
            .ok_or_else(|| Reject::new(Reason::Internal, format!("root secret {} is gone", family.root)))?;
        let (issued, expires) = self.access_window(family, now);
        let claims = self.access_claims(family, issued, expires);
        let access_token =
            self.keyring.keys().own().signing.sign(&claims).map_err(|fault| Reject::new(Reason::Internal, fault))?;
        let extra = self.settings.extra_fields;
        let lifetime = expires.saturating_sub(now.as_secs());
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
        })
    }

    /// `iat` and `exp` in seconds.
    ///
    /// `iat` is not before the family's creation, which the store may have moved past a watermark. `exp` is up to 5 % early,
    /// so that a fleet that logged in together does not refresh together, and not after the family's own end.
    fn access_window(&self, family: &Family, now: UnixTime) -> (u64, u64) {
        let issued = now.max(family.created_at).as_secs();
        let lifetime = self.settings.lifetimes.access.as_secs();
        let early = u64::from(secret::random::<1>()[0]) * lifetime / (20 * 255);
        let expires = (issued + lifetime - early).min(family.absolute_expiry.as_secs());
        (issued, expires)
    }

    /// RFC 9068 section 2.2, and `sid` and `rgn`: the family, and the generation that the answer carries.
    fn access_claims(&self, family: &Family, issued: u64, expires: u64) -> Map<String, Value> {
        let audience = if family.audience.is_empty() { &self.settings.audience } else { &family.audience };
        let mut claims = family.claims.clone();
        claims.insert("iss".into(), json!(self.settings.issuer));
        claims.insert("sub".into(), json!(family.subject));
        claims.insert("aud".into(), if let [one] = &audience[..] { json!(one) } else { json!(audience) });
        claims.insert("iat".into(), json!(issued));
        claims.insert("exp".into(), json!(expires));
        claims.insert("jti".into(), json!(to_base62(&secret::random::<16>(), 22)));
        claims.insert("sid".into(), json!(family.id));
        claims.insert("rgn".into(), json!(family.generation));
        if !family.scope.is_empty() {
            claims.insert("scope".into(), json!(family.scope));
        }
        if !family.client_id.is_empty() {
            claims.insert("client_id".into(), json!(family.client_id));
        }
        claims
    }
}
