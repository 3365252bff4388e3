//! The result of a verification: a token with a valid signature.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};

use super::issuer::Issuer;
use super::key::Signer;
use crate::tokens::credential_kind::CredentialKind;
use crate::tokens::family::{Family, KeyRate};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

/// Claims that each new token of the same session has anew.
const OF_ONE_TOKEN: [&str; 5] = ["exp", "iat", "nbf", "jti", "rgn"];

/// A token with a valid signature, issuer, audience and type. Its validity in time and its revocation are checked on
/// every request.
#[derive(Debug)]
pub struct VerifiedToken {
    pub issuer: Arc<str>,
    /// True if this gateway issued the token: it then belongs to a family.
    pub own: bool,
    /// The credential that this stands for. Only a JWT was signed.
    pub kind: CredentialKind,
    /// Where the login of a handle began. `None` for every other kind.
    pub provider: Option<Arc<SignedInAt>>,
    /// How many requests an API key allows.
    pub key_rate: Option<KeyRate>,
    /// Empty if the token has no subject and its issuer does not require one.
    pub subject: String,
    pub scope: Vec<String>,
    pub jti: Option<String>,
    /// What watermarks are compared with. For a token of this gateway it is the time of the login (`auth_time_ms`),
    /// which a refresh does not change. Otherwise it is `iat`; 1970 if there is none, so that every watermark applies.
    pub dated: UnixTime,
    /// The token is valid from here on: the later of `nbf` and `iat`, minus the clock skew.
    pub not_before: UnixTime,
    /// The token is invalid from here on: `exp` plus the clock skew.
    pub expires: UnixTime,
    /// The claim `sid` of the gateway's own tokens.
    pub family: Option<TokenId>,
    /// The claim `rgn` of the gateway's own tokens: the generation that the token was issued with.
    pub generation: Option<u64>,
    /// Of a handle: how often its login was refreshed at the provider. 0 for every other token.
    pub login_version: u64,
    pub claims: Map<String, Value>,
    /// True if `aud` has a value of `tokens.audience` or `issuer.audience`. False if it names only resources of routes.
    pub is_for_gateway: bool,
    /// The key of the client, by a proof of which alone the token is good (`cnf`). `None` for a bearer token.
    pub bound_to: Option<Thumbprint>,
    /// The certificate of the client, beside which alone the token is good (`cnf`, RFC 8705).
    pub bound_to_certificate: Option<Thumbprint>,
    /// The issuer settings that the token was checked against.
    pub(super) policy: Arc<Issuer>,
    /// The key that verified the signature; `None` until the signature was checked.
    pub(super) signer: Option<Signer>,
    /// Set by the first line of the access log.
    pub log_members: OnceLock<LogMembers>,
}

/// Where a login began. A provider of the same name can have another issuer since a reload.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedInAt {
    /// `provider.name`
    pub provider: Arc<str>,
    pub issuer: Arc<str>,
}

/// What each line of the access log says of a token. Written once: a token has many requests.
#[derive(Debug)]
pub struct LogMembers {
    /// `access_log.max_field_size`, at which texts were cut. A reload may change it.
    pub max_field: usize,
    pub json: Box<[u8]>,
}

/// How far past its `exp` a token is still accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Live,
    /// For refresh requests: clients refresh when their access token has expired.
    ExpiredUpTo(Duration),
}

impl VerifiedToken {
    /// What an API key stands for until `expires`. `policy`: of the gateway's own tokens.
    pub fn of_api_key(
        family: &Family,
        policy: &Arc<Issuer>,
        claims: Map<String, Value>,
        expires: UnixTime,
    ) -> VerifiedToken {
        let is_for_gateway = policy.audience.is_named_in(&claims);
        VerifiedToken {
            issuer: policy.issuer.clone(),
            own: true,
            kind: CredentialKind::ApiKey,
            provider: None,
            key_rate: family.key_rate,
            subject: family.subject.clone(),
            scope: family.scope.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect(),
            jti: None,
            dated: family.created_at,
            // The clock may have been set back since the key was issued.
            not_before: UnixTime::default(),
            expires,
            family: Some(family.id),
            generation: None,
            login_version: 0,
            claims,
            is_for_gateway,
            policy: policy.clone(),
            signer: None,
            log_members: OnceLock::new(),
            bound_to: None,
            bound_to_certificate: None,
        }
    }

    /// What the handle of a login at a provider stands for until `expires`. `policy`: of the gateway's own tokens.
    pub fn of_handle(
        family: &Family,
        at: &Arc<SignedInAt>,
        login_version: u64,
        policy: &Arc<Issuer>,
        claims: Map<String, Value>,
        expires: UnixTime,
    ) -> VerifiedToken {
        let token = VerifiedToken::of_api_key(family, policy, claims, expires);
        VerifiedToken { kind: CredentialKind::Handle, provider: Some(at.clone()), login_version, ..token }
    }

    /// Checks `not_before` and `expires`. Runs on every request, also for a cached token.
    pub fn check_time(&self, now: UnixTime, validity: Validity) -> Result<(), Reject> {
        let end = match validity {
            Validity::Live => self.expires,
            Validity::ExpiredUpTo(span) => self.expires + span,
        };
        if now >= end {
            let late = now.since(self.expires).as_secs();
            return Err(Reject::new(Reason::Expired, format!("expired {late}s ago, clock skew included")));
        }
        if now < self.not_before && !(validity != Validity::Live && self.is_own_dated_ahead()) {
            let early = self.not_before.since(now).as_secs();
            return Err(Reject::new(Reason::NotYetValid, format!("valid in {early}s, clock skew included")));
        }
        Ok(())
    }

    /// Returns true for a token of this gateway that only its `iat` makes not valid yet: it was issued before the clock
    /// was set back. Its client must be able to refresh, or it would be locked out for as long as the step.
    fn is_own_dated_ahead(&self) -> bool {
        self.own && !self.claims.contains_key("nbf")
    }

    /// Returns true for a JWT with a verified signature. False for what stands for another credential.
    pub fn is_signed(&self) -> bool {
        self.signer.is_some()
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        self.scope.iter().any(|held| held == scope)
    }

    /// Returns true if the rules of a route find the same in both tokens. The claims [`OF_ONE_TOKEN`] do not count.
    pub fn has_rights_of(&self, other: &VerifiedToken) -> bool {
        self.scope == other.scope && self.lasting_claims().eq(other.lasting_claims())
    }

    fn lasting_claims(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.claims.iter().filter(|(name, _)| !OF_ONE_TOKEN.contains(&name.as_str()))
    }
}

#[cfg(test)]
impl VerifiedToken {
    pub(crate) fn policy(&self) -> &Arc<Issuer> {
        &self.policy
    }

    /// A token that only has a subject, for tests of other modules.
    pub(crate) fn with_subject(subject: String) -> Self {
        use super::issuer::{Audience, Confirmation};
        let policy = Issuer {
            issuer: "https://login.example".into(),
            audience: Audience::Any,
            resources: Vec::new(),
            algorithms: Vec::new(),
            types: Vec::new(),
            clock_skew: Duration::ZERO,
            max_lifetime: Duration::ZERO,
            require_subject: false,
            own: false,
            confirmation: Confirmation::Reject,
        };
        VerifiedToken {
            issuer: policy.issuer.clone(),
            own: false,
            kind: CredentialKind::Jwt,
            provider: None,
            key_rate: None,
            subject,
            scope: Vec::new(),
            jti: None,
            dated: UnixTime::default(),
            not_before: UnixTime::default(),
            expires: UnixTime::MAX,
            family: None,
            generation: None,
            login_version: 0,
            claims: Map::new(),
            is_for_gateway: true,
            policy: Arc::new(policy),
            signer: None,
            log_members: OnceLock::new(),
            bound_to: None,
            bound_to_certificate: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ISSUED: UnixTime = UnixTime::from_secs(1_000);
    const EXPIRES: UnixTime = UnixTime::from_secs(1_300);
    const MILLISECOND: Duration = Duration::from_millis(1);
    const IDLE: Duration = Duration::from_secs(60);

    fn token(own: bool) -> VerifiedToken {
        let token = VerifiedToken::with_subject("alice".into());
        VerifiedToken { own, not_before: ISSUED, expires: EXPIRES, scope: vec!["read".into(), "write".into()], ..token }
    }

    fn check(token: &VerifiedToken, now: UnixTime, validity: Validity) -> Result<(), Reason> {
        token.check_time(now, validity).map_err(|reject| reject.reason)
    }

    #[test]
    fn a_token_is_valid_from_its_first_to_its_last_millisecond() {
        for (now, expected) in [
            (ISSUED - MILLISECOND, Err(Reason::NotYetValid)),
            (ISSUED, Ok(())),
            (EXPIRES - MILLISECOND, Ok(())),
            (EXPIRES, Err(Reason::Expired)),
        ] {
            assert_eq!(check(&token(false), now, Validity::Live), expected, "{now}");
            assert_eq!(check(&token(true), now, Validity::Live), expected, "{now}");
        }
    }

    #[test]
    fn a_refresh_accepts_a_token_for_the_idle_time_longer() {
        let refresh = Validity::ExpiredUpTo(IDLE);
        for (now, expected) in [
            (ISSUED, Ok(())),
            (EXPIRES, Ok(())),
            (EXPIRES + (IDLE - MILLISECOND), Ok(())),
            (EXPIRES + IDLE, Err(Reason::Expired)),
        ] {
            assert_eq!(check(&token(true), now, refresh), expected, "{now}");
        }
    }

    #[test]
    fn a_refresh_accepts_only_an_own_token_before_its_time() {
        let refresh = Validity::ExpiredUpTo(IDLE);
        let before = ISSUED - MILLISECOND;
        assert_eq!(check(&token(true), before, refresh), Ok(()));
        assert_eq!(check(&token(false), before, refresh), Err(Reason::NotYetValid));
        let mut with_nbf = token(true);
        with_nbf.claims.insert("nbf".into(), json!(1_000));
        assert_eq!(check(&with_nbf, before, refresh), Err(Reason::NotYetValid));
    }

    #[test]
    fn a_newer_token_of_a_session_has_the_same_rights_or_others() {
        let with = |scope: &str, claims: serde_json::Value| VerifiedToken {
            scope: vec![scope.into()],
            claims: claims.as_object().cloned().unwrap_or_default(),
            ..token(true)
        };
        let before = with("read", json!({ "groups": ["staff"], "exp": 1, "iat": 1, "nbf": 1, "jti": "a", "rgn": 1 }));
        for (scope, claims, is_same) in [
            ("read", json!({ "groups": ["staff"], "exp": 2, "iat": 2, "nbf": 2, "jti": "b", "rgn": 2 }), true),
            ("read", json!({ "groups": ["staff"] }), true),
            ("read", json!({ "groups": [] }), false),
            ("read", json!({}), false),
            ("write", json!({ "groups": ["staff"] }), false),
        ] {
            assert_eq!(with(scope, claims.clone()).has_rights_of(&before), is_same, "{scope} {claims}");
        }
    }

    #[test]
    fn a_scope_is_held_whole() {
        let held = ["read", "write", "rea", "read write", ""].map(|scope| token(true).has_scope(scope));
        assert_eq!(held, [true, true, false, false, false]);
    }
}
