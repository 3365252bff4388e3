//! Properties of what strangers send to the authorization server: requests, documents of clients, and sealed texts.

#![allow(dead_code, reason = "each fuzz target uses one function")]

use std::sync::LazyLock;
use std::time::Duration;

use bearward::protocols::http::parameters;
use bearward::tokens::authorization::client_document::ClientDocument;
use bearward::tokens::authorization::client_registration::ClientRegistration;
use bearward::tokens::authorization::code::AuthorizationCode;
use bearward::tokens::authorization::pending::{self, PendingRequest};
use bearward::tokens::authorization::pushed::PushedRequest;
use bearward::tokens::authorization::redirect_uri::RedirectUri;
use bearward::tokens::authorization::request::{self, Offer};
use bearward::tokens::authorization::resource::{OfferedResource, is_named};
use bearward::tokens::family::refresh_token::Roots;
use bearward::types::clock::UnixTime;
use bearward::types::secret::Secret;
use serde_json::Value;

/// The URL of each document.
const DOCUMENT: &str = "https://client.example/client.json";
const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);

static ROOTS: LazyLock<Roots> = LazyLock::new(|| Roots::new((1, Secret::new(vec![7; 32])), vec![]));
static OFFERED: LazyLock<[OfferedResource; 2]> = LazyLock::new(|| {
    let resource = |url: &str, scopes: &[&str]| OfferedResource {
        url: url.to_owned(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        default_scopes: scopes.iter().take(1).map(|scope| (*scope).to_owned()).collect(),
    };
    [
        resource("https://app.example/mcp", &["mcp:read", "token:revoke"]),
        resource("https://app.example", &["notes:read", "notes:write"]),
    ]
});

/// The query of an authorization request, or the form of a pushed one.
///
/// If the gateway accepts it, it asks for nothing that is not offered, survives the way through the browser, and the
/// client gets its `state` back.
pub fn authorize(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok((values, resources)) = parameters::read_with_list(text, "resource") else { return false };
    let redirect_uri = RedirectUri::parse("https://client.example/callback?a=b").expect("a redirect URI");
    let offer = Offer { resources: &*OFFERED, default: Some(0), client_scopes: None };
    let Ok(asked) = request::read(&values, &resources, redirect_uri, &offer) else { return false };
    assert!(asked.resources.iter().all(|url| OFFERED.iter().any(|offered| offered.url == *url)), "{text:?}");
    let named: Vec<&String> = resources.iter().filter(|named| !named.is_empty()).collect();
    let is_asked_for = |url: &String| named.is_empty() || named.iter().any(|named| is_named(url, named));
    assert!(asked.resources.iter().all(is_asked_for), "{text:?}");
    let has = |scope: &String| OFFERED.iter().any(|offered| offered.scopes.contains(scope));
    assert!(asked.scopes.iter().all(|scope| has(scope) && scope != "token:revoke"), "{text:?}");
    assert!(asked.challenge.len() == 43 && values["code_challenge_method"] == "S256", "{text:?}");
    assert_eq!(asked.state.as_ref(), values.get("state").filter(|state| !state.is_empty()), "{text:?}");
    let state = asked.state.clone().unwrap_or_default();
    let answer = asked.redirect_uri.with_query(&parameters::write([("code", "x"), ("state", &*state)]));
    let (_, query) = answer.split_once('?').expect("a query");
    assert_eq!(parameters::read(query).expect("a query")["state"], state, "{answer:?}");
    let pending = PendingRequest::begin("client", asked, &pending::new_browser(), NOW);
    let sealed = pending.seal(&ROOTS).expect("there is a root secret");
    assert_eq!(PendingRequest::open(&sealed, &ROOTS), Some(pending), "{text:?}");
    true
}

/// The document of a client. What the gateway reads in it is there for another parser as well.
pub fn document(bytes: &[u8]) -> bool {
    let Ok(read) = ClientDocument::read(DOCUMENT, bytes) else { return false };
    let document: Value = serde_json::from_slice(bytes).expect("JSON for another parser");
    assert_eq!(document["client_id"], DOCUMENT);
    assert_eq!(document.get("client_secret"), None);
    let listed = document["redirect_uris"].as_array().expect("a list");
    assert!(!read.redirect_uris.is_empty() && listed.len() <= 20, "{document}");
    assert!(read.redirect_uris.iter().all(|uri| listed.iter().any(|text| text == uri.as_str())), "{document}");
    assert_eq!(read.keys.is_some(), document["token_endpoint_auth_method"] == "private_key_jwt", "{document}");
    assert!(read.name.is_none_or(|name| document["client_name"] == name), "{document}");
    true
}

/// The first line is a name, the second one a redirect URI that a client registers, and the third one a text that a
/// stranger sends in the place of one that the gateway has sealed.
///
/// Nothing but the sealed text opens, and nothing opens as another kind of it.
pub fn sealed(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (name, uri, forged) = (line(), line(), line());
    assert!(!opens(forged), "{forged:?}");
    let Ok(uri) = RedirectUri::parse(uri) else { return false };
    let registration =
        ClientRegistration { name: Some(name.to_owned()), redirect_uris: vec![uri], registered_at: NOW.as_secs() };
    let id = registration.seal(&ROOTS).expect("there is a root secret");
    let opened = ClientRegistration::open(&id, &ROOTS, Duration::MAX, NOW);
    assert!(opened.is_none_or(|opened| opened == registration), "{text:?}");
    assert!(AuthorizationCode::open(&id, &ROOTS).is_none() && PendingRequest::open(&id, &ROOTS).is_none());
    for place in [id.len() / 2, id.len() - 1] {
        let other = if id.as_bytes()[place] == b'A' { "B" } else { "A" };
        let changed = format!("{}{other}{}", &id[..place], &id[place + 1..]);
        assert!(ClientRegistration::open(&changed, &ROOTS, Duration::MAX, NOW).is_none(), "{changed}");
    }
    true
}

fn opens(text: &str) -> bool {
    AuthorizationCode::open(text, &ROOTS).is_some()
        || PendingRequest::open(text, &ROOTS).is_some()
        || PushedRequest::open(text, &ROOTS).is_some()
        || ClientRegistration::open(text, &ROOTS, Duration::MAX, NOW).is_some()
}
