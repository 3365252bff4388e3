//! `[[oauth.exchange]]`: which tokens of another issuer a client may exchange for one of this gateway, and what it gets
//! (RFC 8693). Pure.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::gateway::rules::ClaimRule;
use crate::tokens::family::FamilyOrigin;
use crate::tokens::jwt::VerifiedToken;
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeRule {
    /// The name of an `[[issuer]]`.
    pub issuer: String,
    pub clients: ExchangeClients,
    pub token_types: Vec<SubjectTokenType>,
    /// One of these must be in `aud` of an access token.
    pub audience: Vec<String>,
    /// The only values of `aud` in an ID token. `None`: the name of the client that presents it.
    pub id_token_audience: Option<Vec<String>>,
    /// `[[oauth.exchange.claim]]`
    pub claims: Vec<ClaimRule>,
    /// Begins the subject here, before the `sub` of the subject token.
    pub subject_prefix: String,
    /// The scopes that the new token can have.
    pub scopes: Vec<String>,
    /// If true, only those that the subject token has as well.
    pub limit_to_subject: bool,
    /// If true, the client gets a refresh token. If false, all ends with the subject token.
    pub refresh_token: bool,
    /// If true, each `jti` is exchanged once.
    pub single_use: bool,
    /// Names of claims that the new token gets from the subject token.
    pub copied_claims: Vec<String>,
}

/// `oauth.exchange.clients`
#[derive(Clone, Debug, PartialEq)]
pub enum ExchangeClients {
    /// "any": the subject token is enough.
    Any,
    /// Registered clients, by their names.
    Listed(Vec<String>),
}

/// RFC 8693 section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubjectTokenType {
    AccessToken,
    /// An access token as well: it is the form that is known, and not the purpose.
    Jwt,
    IdToken,
}

pub const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";

impl SubjectTokenType {
    /// The names without `urn:ietf:params:oauth:token-type:`.
    pub const NAMES: &[(&str, SubjectTokenType)] = &[
        ("access_token", SubjectTokenType::AccessToken),
        ("jwt", SubjectTokenType::Jwt),
        ("id_token", SubjectTokenType::IdToken),
    ];

    pub fn of(urn: &str) -> Option<SubjectTokenType> {
        let name = urn.strip_prefix("urn:ietf:params:oauth:token-type:")?;
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// Who presents a subject token.
#[derive(Clone, Copy)]
pub struct Presenter<'p> {
    pub kind: SubjectTokenType,
    /// The registered client. `None` for a public one.
    pub client: Option<&'p str>,
    /// The issuer identifier of this gateway.
    pub gateway: &'p str,
}

impl ExchangeRule {
    /// Returns true if this client may use the rule.
    pub fn allows(&self, client: Option<&str>) -> bool {
        match &self.clients {
            ExchangeClients::Any => true,
            ExchangeClients::Listed(listed) => client.is_some_and(|client| listed.iter().any(|known| known == client)),
        }
    }

    /// Checks a verified subject token.
    pub fn check(&self, token: &VerifiedToken, presenter: Presenter<'_>) -> Result<(), Reject> {
        if token.subject.is_empty() {
            return Err(unacceptable("sub is missing or empty"));
        }
        // Without it, no later revocation could be compared with the session.
        if !token.claims.contains_key("iat") {
            return Err(unacceptable("iat is missing"));
        }
        // A logout token or another security event, which can have the `typ` and `aud` of an ID token.
        if token.claims.contains_key("events") {
            return Err(unacceptable("events make it a security event"));
        }
        match presenter.kind {
            SubjectTokenType::IdToken => self.check_id_token(&token.claims, presenter.client)?,
            SubjectTokenType::AccessToken | SubjectTokenType::Jwt => {
                let is_ours = |aud: &str| self.audience.iter().any(|ours| ours == aud);
                if !audiences(&token.claims).is_some_and(|audiences| audiences.into_iter().any(is_ours)) {
                    return Err(unacceptable("aud has none of the accepted values"));
                }
            }
        }
        check_may_act(&token.claims, presenter)?;
        match self.claims.iter().find_map(|rule| rule.violation(&token.claims)) {
            Some(violation) => Err(unacceptable(violation)),
            None => Ok(()),
        }
    }

    /// An ID token is a message to one client, and proves nothing in the hands of another one.
    fn check_id_token(&self, claims: &Map<String, Value>, client: Option<&str>) -> Result<(), Reject> {
        let is_client = |name: &str| match &self.id_token_audience {
            Some(names) => names.iter().any(|known| known == name),
            None => client == Some(name),
        };
        let audiences = audiences(claims).unwrap_or_default();
        if audiences.is_empty() || !audiences.iter().all(|aud| is_client(aud)) {
            return Err(unacceptable("aud is not the client that presents the ID token"));
        }
        let azp = claims.get("azp");
        if azp.is_some_and(|azp| !azp.as_str().is_some_and(is_client)) || azp.is_none() && audiences.len() > 1 {
            return Err(unacceptable("azp is not the client that presents the ID token"));
        }
        Ok(())
    }

    /// The scopes that the client can get for this token.
    pub fn possible_scopes(&self, token: &VerifiedToken) -> Vec<String> {
        let is_possible = |scope: &&String| !self.limit_to_subject || token.has_scope(scope);
        self.scopes.iter().filter(is_possible).cloned().collect()
    }

    /// The login that the subject token stands for, without scope and client. Without a refresh token it ends with the
    /// subject token, and after `longest`.
    pub fn login(&self, token: &VerifiedToken, longest: Duration, now: UnixTime) -> Result<Login, Reject> {
        let exp = token.claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
        let left = UnixTime::from_millis((exp * 1000.0) as u64).since(now);
        if left < Duration::from_secs(1) {
            return Err(unacceptable("it expires in less than a second"));
        }
        let claims = self.copied_claims.iter().filter_map(|name| Some((name.clone(), token.claims.get(name)?.clone())));
        let login = Login {
            subject: format!("{}{}", self.subject_prefix, token.subject),
            prefix_len: self.subject_prefix.len(),
            claims: claims.collect(),
            absolute: (!self.refresh_token).then(|| left.min(longest)),
            ..Login::default()
        };
        login.check().map_err(|error| unacceptable(error.to_string()))?;
        Ok(login)
    }
}

/// The session at the other issuer. It ends the family with it.
pub fn origin_of(token: &VerifiedToken) -> FamilyOrigin {
    FamilyOrigin {
        issuer: token.issuer.to_string(),
        subject: token.subject.clone(),
        session: token.claims.get("sid").and_then(Value::as_str).map(str::to_owned),
        dated: token.dated,
    }
}

/// `None` if `aud` is missing or has something else than strings.
fn audiences(claims: &Map<String, Value>) -> Option<Vec<&str>> {
    match claims.get("aud")? {
        Value::String(one) => Some(vec![one]),
        Value::Array(several) => several.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// `may_act` names the only party that may act for the subject (RFC 8693 section 4.4).
fn check_may_act(claims: &Map<String, Value>, presenter: Presenter<'_>) -> Result<(), Reject> {
    let Some(may_act) = claims.get("may_act") else { return Ok(()) };
    let is = |name: &str, expected: Option<&str>| may_act.get(name).and_then(Value::as_str) == expected;
    let is_here = may_act.get("iss").is_none() || is("iss", Some(presenter.gateway));
    let names_client = presenter.client.is_some()
        && (is("client_id", presenter.client) || may_act.get("client_id").is_none() && is("sub", presenter.client));
    if is_here && names_client { Ok(()) } else { Err(unacceptable("may_act names another party")) }
}

fn unacceptable(detail: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::new(Reason::SubjectToken, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    fn rule() -> ExchangeRule {
        ExchangeRule {
            issuer: "https://login.example".into(),
            clients: ExchangeClients::Listed(vec!["app".into()]),
            token_types: vec![SubjectTokenType::AccessToken],
            audience: vec!["https://shop.example".into()],
            id_token_audience: None,
            claims: Vec::new(),
            subject_prefix: "login|".into(),
            scopes: vec!["a".into(), "b".into()],
            limit_to_subject: true,
            refresh_token: false,
            single_use: false,
            copied_claims: vec!["email".into()],
        }
    }

    fn token(claims: Value) -> VerifiedToken {
        let mut token = VerifiedToken::with_subject("alice".into());
        token.claims = claims.as_object().expect("an object").clone();
        token.claims.entry("iat").or_insert(json!(NOW.as_secs()));
        token.scope = vec!["b".into(), "c".into()];
        token
    }

    fn checked(rule: &ExchangeRule, kind: SubjectTokenType, claims: Value) -> bool {
        let presenter = Presenter { kind, client: Some("app"), gateway: "https://gateway.example" };
        rule.check(&token(claims), presenter).is_ok()
    }

    #[test]
    fn an_access_token_is_for_an_audience_of_the_rule() {
        let good = json!({ "aud": "https://shop.example" });
        assert!(checked(&rule(), SubjectTokenType::AccessToken, good.clone()));
        assert!(checked(&rule(), SubjectTokenType::Jwt, json!({ "aud": ["x", "https://shop.example"] })));
        for aud in [json!("https://other.example"), json!([]), json!(["https://shop.example", 1]), json!(null)] {
            assert!(!checked(&rule(), SubjectTokenType::AccessToken, json!({ "aud": aud })));
        }
        assert!(!checked(&rule(), SubjectTokenType::AccessToken, json!({})));
        let event = json!({ "aud": "https://shop.example", "events": {} });
        assert!(!checked(&rule(), SubjectTokenType::AccessToken, event));
        assert!(!checked(&rule(), SubjectTokenType::IdToken, good), "an ID token is for a client");
        let presenter =
            Presenter { kind: SubjectTokenType::Jwt, client: Some("app"), gateway: "https://gateway.example" };
        let with = |change: fn(&mut VerifiedToken)| {
            let mut token = token(json!({ "aud": "https://shop.example" }));
            change(&mut token);
            rule().check(&token, presenter).is_ok()
        };
        assert!(with(|_| {}));
        assert!(!with(|token| token.subject.clear()));
        assert!(!with(|token| drop(token.claims.remove("iat"))), "revocations are compared with it");
    }

    #[test]
    fn an_id_token_is_for_the_client_that_presents_it() {
        let id_token = |rule: &ExchangeRule, claims| checked(rule, SubjectTokenType::IdToken, claims);
        let named = ExchangeRule { id_token_audience: Some(vec!["x1".into(), "x2".into()]), ..rule() };
        for (claims, here, there) in [
            (json!({ "aud": "app" }), true, false),
            (json!({ "aud": ["app"], "azp": "app" }), true, false),
            (json!({ "aud": "other" }), false, false),
            (json!({ "aud": ["app", "other"], "azp": "app" }), false, false),
            (json!({ "aud": "app", "azp": "other" }), false, false),
            (json!({ "aud": "app", "azp": 1 }), false, false),
            (json!({ "aud": "app", "events": {} }), false, false),
            (json!({ "aud": "x1" }), false, true),
            (json!({ "aud": ["x1", "x2"], "azp": "x2" }), false, true),
            (json!({ "aud": ["x1", "x2"] }), false, false),
            (json!({ "aud": [] }), false, false),
            (json!({}), false, false),
        ] {
            assert_eq!(
                (id_token(&rule(), claims.clone()), id_token(&named, claims.clone())),
                (here, there),
                "{claims}"
            );
        }
    }

    #[test]
    fn may_act_names_the_client() {
        for (may_act, expected) in [
            (json!({ "client_id": "app" }), true),
            (json!({ "sub": "app" }), true),
            (json!({ "sub": "app", "iss": "https://gateway.example" }), true),
            (json!({ "sub": "app", "iss": "https://login.example" }), false),
            (json!({ "sub": "app", "client_id": "other" }), false),
            (json!({ "sub": "other" }), false),
            (json!({}), false),
            (json!("app"), false),
            (json!(null), false),
        ] {
            let claims = json!({ "aud": "https://shop.example", "may_act": may_act });
            assert_eq!(checked(&rule(), SubjectTokenType::Jwt, claims), expected, "{may_act}");
        }
        let anonymous = Presenter { kind: SubjectTokenType::Jwt, client: None, gateway: "https://gateway.example" };
        let claims = json!({ "aud": "https://shop.example", "may_act": {} });
        assert!(rule().check(&token(claims), anonymous).is_err());
    }

    #[test]
    fn scopes_are_those_of_the_rule_and_of_the_token() {
        let subject = token(json!({}));
        assert_eq!(rule().possible_scopes(&subject), ["b"]);
        assert_eq!(ExchangeRule { limit_to_subject: false, ..rule() }.possible_scopes(&subject), ["a", "b"]);
        assert!(ExchangeRule { scopes: Vec::new(), ..rule() }.possible_scopes(&subject).is_empty());
    }

    #[test]
    fn without_a_refresh_token_all_ends_with_the_subject_token() {
        let minute = Duration::from_mins(1);
        let now = NOW.as_secs();
        let login = |rule: &ExchangeRule, exp: u64| {
            let token = token(json!({ "exp": exp, "email": "a@x", "groups": ["g"] }));
            rule.login(&token, 5 * minute, NOW).map_err(|reject| reject.detail)
        };
        let short = login(&rule(), now + 60).expect("a login");
        assert_eq!((short.absolute, short.subject.as_str()), (Some(minute), "login|alice"));
        assert_eq!(short.claims, json!({ "email": "a@x" }).as_object().cloned().expect("an object"));
        assert_eq!(login(&rule(), now + 3_600).expect("a login").absolute, Some(5 * minute));
        let family = ExchangeRule { refresh_token: true, ..rule() };
        assert_eq!(login(&family, now + 60).expect("a login").absolute, None);
        assert!(login(&rule(), now).is_err() && login(&family, now).is_err());
        let as_client = ExchangeRule { subject_prefix: "client|".into(), ..rule() };
        assert!(login(&as_client, now + 60).is_err(), "no user is a client");
    }

    #[test]
    fn only_listed_clients_use_a_rule() {
        let any = ExchangeRule { clients: ExchangeClients::Any, ..rule() };
        let allowed = [Some("app"), Some("other"), None].map(|client| (rule().allows(client), any.allows(client)));
        assert_eq!(allowed, [(true, true), (false, true), (false, true)]);
    }
}
