//! The registration endpoint (RFC 7591): a client registers itself. The client id that it gets is its registration, so
//! that nothing is stored, however many register.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::settings::RegistrationSettings;
use crate::protocols::http::body::Body;
use crate::protocols::http::{media_type, respond};
use crate::tokens::authorization::client_registration::{ClientRegistration, MAX_LEN};
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::json;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Maximum number of redirect URIs.
const MAX_REDIRECT_URIS: usize = 10;

/// Maximum length of a name, in bytes. A longer one is cut off.
const MAX_NAME: usize = 64;

/// Registers a client. `content`: the body.
pub fn register(
    settings: &RegistrationSettings,
    headers: &HeaderMap,
    content: &Bytes,
    roots: &Roots,
    now: UnixTime,
) -> Result<Response<Body>, Reject> {
    let bad = |detail: &'static str| Reject::new(Reason::RegistrationRejected, detail);
    if !media_type::is(headers, "application/json") {
        return Err(bad("Content-Type is not application/json"));
    }
    let metadata = json::object(content).map_err(|_| bad("the body is no JSON object without duplicate members"))?;
    check_method(&metadata)?;
    let redirect_uris = redirect_uris(settings, &metadata)?;
    let registration = ClientRegistration { name: name(&metadata), redirect_uris, registered_at: now.as_secs() };
    let client_id = registration.seal(roots);
    let client_id = client_id.ok_or_else(|| Reject::new(Reason::Internal, "there is no root secret"))?;
    if client_id.len() > MAX_LEN {
        return Err(bad("the redirect URIs are together too long"));
    }
    let uris: Vec<&str> = registration.redirect_uris.iter().map(RedirectUri::as_str).collect();
    let mut registered = json!({
        "client_id": client_id,
        "client_id_issued_at": now.as_secs(),
        "redirect_uris": uris,
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    });
    if let Some(name) = &registration.name {
        registered["client_name"] = json!(name);
    }
    Ok(respond::json(StatusCode::CREATED, &registered))
}

/// A client that cannot keep a secret needs none: PKCE and the redirect URI protect its codes.
fn check_method(metadata: &Map<String, Value>) -> Result<(), Reject> {
    match metadata.get("token_endpoint_auth_method") {
        None => Ok(()),
        Some(method) if method == "none" => Ok(()),
        Some(_) => {
            let detail = "token_endpoint_auth_method must be none: clients that register themselves get no secret";
            let reject = Reject::new(Reason::RegistrationRejected, detail);
            Err(reject.described("token_endpoint_auth_method must be none".to_owned()))
        }
    }
}

/// One wrong URI is enough to reject all: a client that registers it would use it.
fn redirect_uris(settings: &RegistrationSettings, metadata: &Map<String, Value>) -> Result<Vec<RedirectUri>, Reject> {
    let bad = |detail: String| Reject::new(Reason::RedirectRejected, detail);
    let listed = metadata.get("redirect_uris").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if listed.is_empty() || listed.len() > MAX_REDIRECT_URIS {
        return Err(bad(format!("expected 1 to {MAX_REDIRECT_URIS} redirect_uris")));
    }
    let mut uris: Vec<RedirectUri> = Vec::new();
    for value in listed {
        let text = value.as_str().ok_or_else(|| bad("a redirect_uri is no text".to_owned()))?;
        let uri = RedirectUri::parse(text).map_err(|error| bad(format!("{text:?}: {error}")))?;
        if !settings.accepts(&uri) {
            return Err(bad(format!("{text:?}: oauth.registration does not allow this kind")));
        }
        if !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    Ok(uris)
}

fn name(metadata: &Map<String, Value>) -> Option<String> {
    let name = metadata.get("client_name")?.as_str()?;
    let end = name.char_indices().map(|(start, character)| start + character.len_utf8());
    let end = end.take_while(|end| *end <= MAX_NAME).last()?;
    Some(name[..end].to_owned())
}
