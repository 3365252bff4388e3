//! The parameters of an authorization request, after its client and its redirect URI are known (OAuth 2.1 section
//! 4.1.1, RFC 8707, RFC 9449 section 10). Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::redirect_uri::RedirectUri;
use super::resource::{OfferedResource, is_named};
use crate::tokens::sign_in::freshness::{Freshness, SignInRequest};
use crate::tokens::sign_in::hints::SignInHints;

/// Maximum length of `state`, in bytes.
const MAX_STATE: usize = 1_024;

/// Maximum number of resources of one request.
const MAX_RESOURCES: usize = 4;

/// Length of a SHA-256 in base64url: of `code_challenge` and of `dpop_jkt`.
const HASH_LEN: usize = 43;

/// A scope of OpenID Connect. Each refresh token is one for offline access, and many clients request it unasked.
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// Scopes over the sessions of all users: no user grants them to a client.
const OF_OPERATORS: [&str; 2] = ["token:revoke", "token:introspect"];

/// What a client asks the user for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRequest {
    /// Where the answer goes.
    #[serde(rename = "u")]
    pub redirect_uri: RedirectUri,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `code_challenge`, of the method S256.
    #[serde(rename = "c")]
    pub challenge: String,
    /// At least one.
    #[serde(rename = "r")]
    pub resources: Vec<String>,
    /// Those that the client can get. What the user can grant of them is decided later.
    #[serde(rename = "p")]
    pub scopes: Vec<String>,
    /// The thumbprint of the key that the code is bound to.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub dpop_jkt: Option<String>,
    #[serde(rename = "l")]
    pub sign_in: SignInWish,
    /// `prompt=consent`: the user is asked, also for a client that can do without.
    #[serde(rename = "a", default, skip_serializing_if = "std::ops::Not::not")]
    pub wants_consent: bool,
    #[serde(rename = "h", default, skip_serializing_if = "SignInHints::is_empty")]
    pub hints: SignInHints,
}

impl AuthorizationRequest {
    /// What the place of the sign-in learns.
    pub fn at_sign_in(&self) -> SignInRequest {
        let freshness = match self.sign_in {
            SignInWish::Any | SignInWish::Silent => Freshness::Any,
            SignInWish::Anew => Freshness::Anew,
            SignInWish::Within(seconds) => Freshness::Within(seconds),
        };
        SignInRequest { freshness, hints: self.hints.clone() }
    }

    /// The parameters that ask for the same, but for the name of the client. Without hints: they may name the user of
    /// another browser.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = vec![
            ("response_type", "code".to_owned()),
            ("redirect_uri", self.redirect_uri.as_str().to_owned()),
            ("code_challenge", self.challenge.clone()),
            ("code_challenge_method", "S256".to_owned()),
        ];
        parameters.extend(self.state.clone().map(|state| ("state", state)));
        parameters.extend(self.dpop_jkt.clone().map(|thumbprint| ("dpop_jkt", thumbprint)));
        parameters.extend(self.resources.iter().map(|resource| ("resource", resource.clone())));
        if !self.scopes.is_empty() {
            parameters.push(("scope", self.scopes.join(" ")));
        }
        let mut prompt = Vec::new();
        match self.sign_in {
            SignInWish::Any => {}
            SignInWish::Silent => prompt.push("none"),
            SignInWish::Anew => prompt.push("login"),
            SignInWish::Within(seconds) => parameters.push(("max_age", seconds.to_string())),
        }
        if self.wants_consent {
            prompt.push("consent");
        }
        if !prompt.is_empty() {
            parameters.push(("prompt", prompt.join(" ")));
        }
        parameters
    }
}

/// `prompt` and `max_age`: whether the user has to sign in anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignInWish {
    /// A session of the browser is used.
    #[default]
    Any,
    /// `prompt=none`: the user is not asked anything.
    Silent,
    /// `prompt=login` or `prompt=select_account`: after the request.
    Anew,
    /// `max_age`: at most this number of seconds ago.
    Within(u64),
}

/// What the gateway can grant to the client.
pub struct Offer<'o> {
    pub resources: &'o [OfferedResource],
    /// The place of the resource that a request without one is for.
    pub default: Option<usize>,
    /// The scopes that the operator allows this client. `None`: all.
    pub client_scopes: Option<&'o [String]>,
}

/// An error that the client gets at its redirect URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// OAuth 2.1 section 4.1.2.1, RFC 8707 section 2, OpenID Connect Core section 3.1.2.6.
    pub code: &'static str,
    /// ASCII without quotes.
    pub description: &'static str,
}

impl RequestError {
    pub const fn new(code: &'static str, description: &'static str) -> Self {
        RequestError { code, description }
    }
}

/// Reads the parameters in the order in which a client learns most of an error. `resources`: the values of `resource`,
/// the only parameter that may be repeated.
pub fn read(
    parameters: &BTreeMap<String, String>,
    resources: &[String],
    redirect_uri: RedirectUri,
    offer: &Offer<'_>,
) -> Result<AuthorizationRequest, RequestError> {
    let get = |name: &str| parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
    if get("request").is_some() {
        return Err(RequestError::new("request_not_supported", "request objects are not supported"));
    }
    check_response(get("response_type"), get("response_mode"))?;
    let challenge = challenge(get("code_challenge"), get("code_challenge_method"))?;
    let named: Vec<&String> = resources.iter().filter(|resource| !resource.is_empty()).collect();
    let resources = wanted_resources(&named, offer)?;
    let scopes = wanted_scopes(get("scope"), &resources, offer)?;
    let state = get("state");
    if state.is_some_and(|state| state.len() > MAX_STATE) {
        return Err(RequestError::new("invalid_request", "state is longer than 1024 bytes"));
    }
    let dpop_jkt = get("dpop_jkt");
    if dpop_jkt.is_some_and(|thumbprint| !is_hash(thumbprint)) {
        return Err(RequestError::new("invalid_request", "dpop_jkt is no SHA-256 in base64url"));
    }
    Ok(AuthorizationRequest {
        redirect_uri,
        state: state.map(str::to_owned),
        challenge: challenge.to_owned(),
        resources: resources.into_iter().map(|resource| resource.url.clone()).collect(),
        scopes,
        dpop_jkt: dpop_jkt.map(str::to_owned),
        sign_in: sign_in(get("prompt"), get("max_age"))?,
        wants_consent: prompts(get("prompt")).any(|value| value == "consent"),
        hints: SignInHints::of(parameters),
    })
}

fn check_response(kind: Option<&str>, mode: Option<&str>) -> Result<(), RequestError> {
    match kind {
        Some("code") => {}
        Some(_) => return Err(RequestError::new("unsupported_response_type", "response_type must be code")),
        None => return Err(RequestError::new("invalid_request", "response_type is missing")),
    }
    match mode {
        None | Some("query") => Ok(()),
        Some(_) => Err(RequestError::new("invalid_request", "response_mode must be query")),
    }
}

/// RFC 7636 section 4.3. Without a challenge, a stolen code would be enough.
fn challenge<'p>(challenge: Option<&'p str>, method: Option<&str>) -> Result<&'p str, RequestError> {
    let Some(challenge) = challenge else {
        return Err(RequestError::new("invalid_request", "code_challenge is missing; use PKCE with S256"));
    };
    if method != Some("S256") {
        return Err(RequestError::new("invalid_request", "code_challenge_method must be S256"));
    }
    if !is_hash(challenge) {
        return Err(RequestError::new("invalid_request", "code_challenge must be 43 characters of base64url"));
    }
    Ok(challenge)
}

fn is_hash(text: &str) -> bool {
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() == HASH_LEN && text.bytes().all(is_base64url)
}

/// RFC 8707 section 2.
fn wanted_resources<'o>(wanted: &[&String], offer: &Offer<'o>) -> Result<Vec<&'o OfferedResource>, RequestError> {
    if wanted.len() > MAX_RESOURCES {
        return Err(RequestError::new("invalid_target", "more than 4 resources"));
    }
    if wanted.is_empty() {
        let default = offer.default.and_then(|place| offer.resources.get(place));
        let missing = RequestError::new("invalid_target", "resource is missing, and there is no default");
        return default.map(|resource| vec![resource]).ok_or(missing);
    }
    let mut found: Vec<&OfferedResource> = Vec::new();
    for text in wanted {
        let known = offer.resources.iter().find(|resource| is_named(&resource.url, text));
        let known = known.ok_or(RequestError::new("invalid_target", "there is no such resource"))?;
        if !found.contains(&known) {
            found.push(known);
        }
    }
    Ok(found)
}

/// The scopes that the client requests and can get, or those of the challenges if it requests none. An unknown one is
/// left out, because many clients request what other servers have; the response says what was granted. It is an error
/// if none is left.
fn wanted_scopes(
    requested: Option<&str>,
    resources: &[&OfferedResource],
    offer: &Offer<'_>,
) -> Result<Vec<String>, RequestError> {
    let offered: Vec<&String> = resources.iter().flat_map(|resource| &resource.scopes).collect();
    let is_allowed = |scope: &str| offer.client_scopes.is_none_or(|scopes| scopes.iter().any(|known| known == scope));
    let is_possible = |scope: &str| {
        is_allowed(scope) && !OF_OPERATORS.contains(&scope) && offered.iter().any(|known| *known == scope)
    };
    let requested = requested.unwrap_or_default().split(' ');
    let mut wanted: Vec<&str> = requested.filter(|scope| !scope.is_empty() && *scope != OFFLINE_ACCESS).collect();
    if wanted.is_empty() {
        wanted = resources.iter().flat_map(|resource| &resource.default_scopes).map(String::as_str).collect();
    } else if !wanted.iter().any(|scope| is_possible(scope)) {
        return Err(RequestError::new("invalid_scope", "none of these scopes can be granted"));
    }
    let mut scopes: Vec<String> = Vec::new();
    for scope in wanted {
        if is_possible(scope) && !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    Ok(scopes)
}

/// The values of `prompt` (OpenID Connect Core section 3.1.2.1).
fn prompts(prompt: Option<&str>) -> impl Iterator<Item = &str> {
    prompt.unwrap_or_default().split(' ').filter(|value| !value.is_empty())
}

fn sign_in(prompt: Option<&str>, max_age: Option<&str>) -> Result<SignInWish, RequestError> {
    let prompts: Vec<&str> = prompts(prompt).collect();
    if prompts.contains(&"none") {
        return match prompts.len() {
            1 => Ok(SignInWish::Silent),
            _ => Err(RequestError::new("invalid_request", "prompt=none with another value")),
        };
    }
    if prompts.iter().any(|value| matches!(*value, "login" | "select_account")) {
        return Ok(SignInWish::Anew);
    }
    match max_age.map(str::parse) {
        None => Ok(SignInWish::Any),
        Some(Ok(seconds)) => Ok(SignInWish::Within(seconds)),
        Some(Err(_)) => Err(RequestError::new("invalid_request", "max_age is no number of seconds")),
    }
}

#[cfg(test)]
mod tests;
