//! The parameters of the callback (RFC 6749 section 4.1.2, RFC 9207), and the URL of the authorization endpoint, to
//! which the gateway sends the browser. Pure.

use std::collections::BTreeMap;

use crate::protocols::http::parameters;
use crate::tokens::sign_in::attempt::Attempt;

/// Maximum length of each parameter, in bytes.
const MAX_LEN: usize = 4096;

/// The callback of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Callback {
    pub(super) state: String,
    /// `iss` (RFC 9207)
    pub(super) issuer: Option<String>,
    pub(super) outcome: Outcome,
}

#[derive(PartialEq, Eq)]
pub(super) enum Outcome {
    Code(String),
    /// The code of the error. Its description is not read.
    Error(String),
}

/// Without the code: it must not reach a log.
impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Code(_) => f.write_str("Code(…)"),
            Outcome::Error(error) => write!(f, "Error({error})"),
        }
    }
}

impl Callback {
    /// Each parameter at most once: two programs could each use another one.
    pub(super) fn read(query: &str) -> Result<Self, &'static str> {
        let mut found = parameters::read(query)?;
        let mut take = |name: &str| match found.remove(name) {
            Some(value) if value.len() > MAX_LEN => Err("a parameter is too long"),
            value => Ok(value.filter(|value| !value.is_empty())),
        };
        let state = take("state")?;
        let code = take("code")?;
        let error = take("error")?;
        let issuer = take("iss")?;
        let state = state.ok_or("state is missing")?;
        let outcome = match (code, error) {
            (Some(code), None) => Outcome::Code(code),
            (None, Some(error)) => Outcome::Error(error),
            (Some(_), Some(_)) => return Err("both code and error"),
            (None, None) => return Err("neither code nor error"),
        };
        Ok(Callback { state, issuer, outcome })
    }

    /// The provider that answers must be the one that was asked (RFC 9207 section 2.4). `announced`: its metadata says
    /// that it sends `iss`.
    pub(super) fn check_issuer(&self, expected: &str, announced: bool) -> Result<(), &'static str> {
        match &self.issuer {
            Some(issuer) if issuer == expected => Ok(()),
            Some(_) => Err("iss is not the issuer of the provider"),
            None if announced => Err("iss is missing, and the provider announces it"),
            None => Ok(()),
        }
    }
}

/// What every request of one provider has.
pub(super) struct Authorization<'a> {
    pub(super) endpoint: &'a str,
    pub(super) client_id: &'a str,
    pub(super) redirect_uri: &'a str,
    pub(super) scopes: &'a str,
    /// `provider.authorization_parameters`
    pub(super) more: &'a BTreeMap<String, String>,
}

impl Authorization<'_> {
    /// The parameters of the operator come first and cannot replace those of the gateway: the configuration rejects the
    /// same names.
    pub(super) fn url(&self, attempt: &Attempt, state: &str) -> String {
        let challenge = attempt.challenge();
        let own = [
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", self.redirect_uri),
            ("scope", self.scopes),
            ("state", state),
            ("nonce", &*attempt.nonce),
            ("code_challenge", &*challenge),
            ("code_challenge_method", "S256"),
        ];
        let more = self.more.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let query = parameters::write(more.chain(own));
        let separator = if self.endpoint.contains('?') { '&' } else { '?' };
        format!("{}{separator}{query}", self.endpoint)
    }
}

/// Parameters of an authorization request that only the gateway sets.
pub const OWN_PARAMETERS: [&str; 12] = [
    "response_type",
    "response_mode",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
    "request",
    "request_uri",
    "id_token_hint",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::sign_in::attempt;
    use crate::tokens::sign_in::freshness::Freshness;
    use crate::types::clock::UnixTime;

    #[test]
    fn a_callback_is_read_in_one_way_only() {
        let code = |issuer: Option<&str>| Callback {
            state: "s".into(),
            issuer: issuer.map(str::to_owned),
            outcome: Outcome::Code("c".into()),
        };
        assert_eq!(Callback::read("code=c&state=s"), Ok(code(None)));
        assert_eq!(Callback::read("code=c&state=s&iss=https%3A%2F%2Fa&session_state=x"), Ok(code(Some("https://a"))));
        let denied = Callback::read("error=access_denied&error_description=%3Cscript%3E&state=s").expect("an error");
        assert_eq!(denied.outcome, Outcome::Error("access_denied".into()));
        for (query, wrong) in [
            ("", "state is missing"),
            ("code=c", "state is missing"),
            ("code=c&state=", "state is missing"),
            ("error=x&iss=y", "state is missing"),
            ("code=c&state=s&state=s", "a parameter is repeated"),
            ("code=c&code=d&state=s", "a parameter is repeated"),
            ("code=c&state=s&iss=a&iss=a", "a parameter is repeated"),
            ("code=c&error=e&state=s", "both code and error"),
            ("state=s", "neither code nor error"),
            ("code=%zz&state=s", "an invalid percent-encoding"),
        ] {
            assert_eq!(Callback::read(query).err(), Some(wrong), "{query}");
        }
        let long = |len| format!("state=s&code={}", "c".repeat(len));
        assert!(Callback::read(&long(MAX_LEN)).is_ok() && Callback::read(&long(MAX_LEN + 1)).is_err());
    }

    #[test]
    fn an_announced_issuer_must_be_there() {
        let callback = |issuer: Option<&str>| Callback {
            state: String::new(),
            issuer: issuer.map(str::to_owned),
            outcome: Outcome::Error(String::new()),
        };
        for (issuer, announced, good) in [
            (Some("https://a"), true, true),
            (Some("https://a"), false, true),
            (Some("https://a/"), false, false),
            (Some("https://A"), false, false),
            (Some("https://b"), true, false),
            (None, true, false),
            (None, false, true),
        ] {
            assert_eq!(callback(issuer).check_issuer("https://a", announced).is_ok(), good, "{issuer:?} {announced}");
        }
    }

    #[test]
    fn the_url_has_each_parameter_once() {
        let (attempt, state) = attempt::begin("main", "https://a", "/", Freshness::Any, UnixTime::from_secs(1));
        let more = BTreeMap::from([("prompt".to_owned(), "login".to_owned())]);
        let authorization = Authorization {
            endpoint: "https://a/authorize?tenant=x",
            client_id: "the client",
            redirect_uri: "https://app.example/oauth2/callback/main",
            scopes: "openid email",
            more: &more,
        };
        let url = authorization.url(&attempt, &state);
        let (endpoint, query) = url.split_once('?').expect("a query");
        let read = parameters::read(query).expect("no parameter is repeated");
        assert_eq!((endpoint, &*read["tenant"], &*read["prompt"]), ("https://a/authorize", "x", "login"));
        assert_eq!((&*read["client_id"], &read["state"], &read["nonce"]), ("the client", &state, &attempt.nonce));
        assert_eq!((&*read["code_challenge_method"], &read["code_challenge"]), ("S256", &attempt.challenge()));
        assert!(!url.contains(&attempt.verifier));
    }
}
