//! Properties that hold for every input. Each function panics if its property does not hold. It returns true if the
//! input was accepted.
//!
//! To run the fuzzer, you need `cargo install cargo-fuzz` and a nightly compiler:
//!
//! ```sh
//! export ASAN_OPTIONS=detect_odr_violation=0    # SQLite is linked twice
//! cargo +nightly fuzz run --fuzz-dir tests/fuzz token -- -max_total_time=60
//! # or: path, headers, config, protobuf, redirect; of authorization.rs: authorize, document, sealed
//! cargo +nightly fuzz cmin --fuzz-dir tests/fuzz token                        # minimizes the corpus
//! ```
//!
//! The inputs that it kept are in `corpus/`. Every test run replays them (`tests/it/hostile/corpora.rs`).
#![allow(dead_code, reason = "each fuzz target uses one function")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::auth::identity::Identity;
use bearward::config::{self, Probe};
use bearward::protocols::http::headers::Hygiene;
use bearward::protocols::http::path::CanonicalPath;
use bearward::protocols::http::removed_fields::FieldRules;
use bearward::protocols::protobuf::{Field, Fields, Message, only};
use bearward::tokens::authorization::client_document;
use bearward::tokens::authorization::redirect_uri::{RedirectKind, RedirectUri};
use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::pointer::Pointer;
use bearward::tokens::jwt::verify::{TrustedIssuer, verify};
use bearward::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer, Validity};
use bearward::types::clock::UnixTime;
use bearward::types::step::StepReporter;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use jsonwebtoken::{DecodingKey, EncodingKey, Validation};
use serde_json::{Map, Value};

const SECRET: &[u8] = b"a secret for fuzzing, 32 bytes of";
const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "https://api.example";
/// Unix time in seconds, in 2027.
const NOW: u64 = 1_800_000_000;
const CLOCK_SKEW: u64 = 30;
const MAX_LIFETIME: u64 = 86_400;

static ISSUERS: LazyLock<[TrustedIssuer; 1]> = LazyLock::new(|| {
    let policy = Issuer {
        issuer: ISSUER.into(),
        audience: Audience::OneOf(vec![AUDIENCE.into()]),
        resources: Vec::new(),
        algorithms: vec![Algorithm::HS256],
        types: vec!["at+jwt".into()],
        clock_skew: Duration::from_secs(CLOCK_SKEW),
        max_lifetime: Duration::from_secs(MAX_LIFETIME),
        require_subject: true,
        confirmation: Confirmation::Reject,
        own: false,
    };
    let keys = KeySet::from_secret(SECRET, &policy.algorithms).expect("a key set");
    [TrustedIssuer { policy: Arc::new(policy), keys: Arc::new(keys) }]
});

/// An input of one line is a token. In an input of several lines, the first line is a header and the rest are claims.
/// Such a token gets a valid signature, because a fuzzer cannot find one.
///
/// If the gateway accepts the token, the library `jsonwebtoken` accepts it as well, and the claims meet the issuer's
/// requirements.
pub fn token(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let token = match text.split_once('\n') {
        None => text.to_owned(),
        Some((header, claims)) => signed(header, claims),
    };
    let now = UnixTime::from_secs(NOW);
    let Ok(verified) = verify(&token, &*ISSUERS, now, Validity::Live, StepReporter::OFF) else { return false };

    let claims = decode_with_library(&token).expect("the library rejects a token that the gateway accepts");
    assert_eq!(claims, verified.claims, "the gateway and the library read different claims");
    assert_eq!(verified.subject, claims["sub"], "the subject differs from that in the claims");
    assert!(!verified.subject.is_empty(), "no subject");
    let date = |name: &str| claims.get(name).map(|date| date.as_f64().expect("a number"));
    let exp = date("exp").expect("exp");
    assert!(exp + CLOCK_SKEW as f64 > NOW as f64, "expired: {exp}");
    assert!(exp - date("iat").unwrap_or(NOW as f64) < MAX_LIFETIME as f64 + 0.01, "the lifetime is too long");
    for begin in ["nbf", "iat"] {
        assert!(date(begin).is_none_or(|begin| begin < (NOW + CLOCK_SKEW) as f64 + 0.01), "{begin} is in the future");
    }
    let header = jsonwebtoken::decode_header(&token).expect("the library reads the header");
    assert!(header.typ.is_some_and(|typ| typ.to_ascii_lowercase().ends_with("at+jwt")), "wrong typ");
    assert!(header.jku.is_none() && header.jwk.is_none() && header.x5u.is_none(), "a key from the token");
    assert!(header.crit.is_none(), "a critical extension");
    true
}

fn signed(header: &str, claims: &str) -> String {
    let message = [header, claims].map(|text| URL_SAFE_NO_PAD.encode(text)).join(".");
    let key = EncodingKey::from_secret(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("a signature");
    format!("{message}.{signature}")
}

/// The library does not check `exp` here, because it would read the clock.
fn decode_with_library(token: &str) -> Result<Map<String, Value>, jsonwebtoken::errors::Error> {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.validate_exp = false;
    validation.set_issuer(&[ISSUER]);
    validation.set_audience(&[AUDIENCE]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    jsonwebtoken::decode(token, &DecodingKey::from_secret(SECRET), &validation).map(|data| data.claims)
}

/// An accepted path has one meaning for every backend: decoded once or twice, with backslashes read as slashes, with or
/// without path parameters.
pub fn path(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(path) = CanonicalPath::parse(text) else { return false };
    assert!(text.is_ascii() && text.starts_with('/'), "{text:?}");
    assert!(!text.bytes().any(|byte| byte.is_ascii_control() || b" \\;?#".contains(&byte)), "{text:?}");
    let once = naively_decoded(text.as_bytes());
    assert_eq!(path.as_bytes(), once, "the matched path differs from the path that was sent: {text:?}");
    assert!(str::from_utf8(&once).is_ok(), "a lenient decoder may read an overlong form as a separator: {text:?}");
    let slashes = |path: &[u8]| path.iter().filter(|byte| b"/\\".contains(byte)).count();
    for decoded in [once.clone(), naively_decoded(&once)] {
        assert_eq!(slashes(&decoded), slashes(text.as_bytes()), "decoding changes the number of segments: {text:?}");
        assert!(!decoded.iter().any(|byte| byte.is_ascii_control() || b";?#".contains(byte)), "{text:?}");
        assert!(!decoded.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b".."), "{text:?}");
    }
    assert!(!once.windows(2).any(|pair| pair == b"//"), "{text:?}");
    true
}

/// Decodes like a careless backend: an invalid percent-encoding stays as it is.
fn naively_decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = path;
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let hex = hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

/// The input is lines of `name: value`. The gateway removes the header names that it sets itself, in every spelling
/// that a backend might treat as the same name. It removes hop-by-hop headers. It leaves all other headers unchanged.
pub fn headers(bytes: &[u8]) -> bool {
    const GATEWAY_NAMES: &[&str] =
        &["x-auth-subject", "x-auth-claims", "x-auth-observed", "forwarded", "x-real-ip", "proxy"];
    const HOP_BY_HOP: &[&str] = &["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    let sent = lines(bytes);
    let mut left = sent.clone();
    let subject = HeaderName::from_static("x-auth-subject");
    let claims = vec![(Pointer::parse("/a").expect("a pointer"), HeaderName::from_static("x-auth-claims"))];
    let identity = Identity {
        subject: Some(subject),
        scope: None,
        token_id: None,
        issuer: None,
        claims,
        certificate: Default::default(),
    };
    Hygiene::new(identity.names(), &FieldRules::default()).clean_request(&mut left);

    let as_cgi = |name: &str| name.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    for name in left.keys().map(HeaderName::as_str) {
        let spelled = as_cgi(name);
        assert!(GATEWAY_NAMES.iter().all(|reserved| spelled != as_cgi(reserved)), "{name} is reserved for the gateway");
        assert!(
            !spelled.starts_with("X_FORWARDED_") || spelled == "X_FORWARDED_",
            "{name} is reserved for the gateway"
        );
        assert!(!HOP_BY_HOP.contains(&name), "{name} is a hop-by-hop header");
    }
    assert!(left.get_all("te").iter().all(|te| te == "trailers"), "te: {left:?}");
    for (name, value) in &left {
        let was_sent = sent.get_all(name).iter().any(|sent| sent == value);
        assert!(was_sent || name == "te", "{name} has a value that was not sent");
    }
    for kept in ["host", "authorization", "cookie", "content-length", "x-auth-subjects"] {
        let is_nominated = kept == "x-auth-subjects" && sent.contains_key("connection");
        assert!(is_nominated || left.get_all(kept).iter().eq(sent.get_all(kept)), "{kept} was changed");
    }
    left == sent
}

fn lines(bytes: &[u8]) -> HeaderMap {
    let pairs = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((HeaderName::from_bytes(&line[..colon]).ok()?, value))
    });
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.take(100) {
        headers.append(name, value);
    }
    headers
}

/// Any text is a valid configuration or has faults. Each fault has a position inside the text, and all faults can be
/// shown.
pub fn config(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // Reading a device might never end.
    if text.contains("/dev") || text.contains("/proc") {
        return false;
    }
    let Err(faults) = config::parse(text, &std::env::temp_dir(), Probe::None) else { return true };
    assert!(!faults.all().is_empty(), "rejected without a fault");
    let lines = text.split('\n').count();
    for fault in faults.all() {
        let (line, column) = faults.line_and_column(&fault.place);
        assert!((1..=lines).contains(&line) && column >= 1, "{line}:{column} of {lines} lines");
    }
    assert!(!faults.render(false).is_empty());
    serde_json::from_str::<Value>(&faults.json()).expect("faults as JSON");
    false
}

/// A message of Protocol Buffers is read whole or not at all: what was read, written again, has the same fields. A
/// field that is wanted is there at most once, and consists of bytes.
pub fn protobuf(bytes: &[u8]) -> bool {
    let fields: Vec<_> = Fields(bytes).collect();
    assert!(fields.iter().rev().skip(1).all(Result::is_ok), "a field after one that is malformed");
    let wanted = only(bytes, [1, 2]);
    let Ok(fields) = fields.into_iter().collect::<Result<Vec<_>, _>>() else {
        assert!(wanted.is_err(), "fields of a malformed message");
        return false;
    };
    let mut again = Message::default();
    for (number, field) in &fields {
        match field {
            Field::Number(value) => again.number(*number, *value),
            Field::Bytes(value) => again.bytes(*number, value),
            Field::Fixed => again.fixed32(*number, 0),
        }
    }
    assert_eq!(Fields(&again.0).collect::<Result<Vec<_>, _>>().as_ref(), Ok(&fields));
    let values = [1, 2].map(|wanted| fields.iter().filter(|(number, _)| *number == wanted).collect::<Vec<_>>());
    let expected = values.map(|values| match values[..] {
        [] => Some(&b""[..]),
        [(_, Field::Bytes(value))] => Some(*value),
        _ => None,
    });
    let [Some(first), Some(second)] = expected else {
        assert!(wanted.is_err(), "repeated, or of another type");
        return true;
    };
    assert_eq!(wanted, Ok([first, second]));
    true
}

/// The first line is a redirect URI that a client registers, the second one that it asks for. A code goes only where
/// another parser finds the same scheme and host as in the registered text, and nowhere with a user name.
pub fn redirect(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (registered, requested) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(host) = client_document::host_of(registered) {
        let uri: Uri = registered.parse().expect("the URL of a client is one for another parser");
        assert_eq!(uri.host(), Some(host), "{registered:?}");
        assert!(uri.path() != "/" && !registered.contains(['@', '#']), "{registered:?}");
    }
    let Ok(registered) = RedirectUri::parse(registered) else { return false };
    let Some(target) = registered.target(requested) else { return false };
    if !matches!(target.kind(), RedirectKind::PrivateScheme { .. }) {
        let [ours, theirs] = [registered.as_str(), target.as_str()].map(|text| text.parse::<Uri>().expect("a URI"));
        assert_eq!((ours.scheme_str(), ours.host()), (theirs.scheme_str(), theirs.host()), "{text:?}");
        assert_eq!(ours.path_and_query(), theirs.path_and_query(), "{text:?}");
        assert!(ours.scheme_str() == Some("https") || target.kind() == RedirectKind::Loopback, "{text:?}");
        assert!(ours.port() == theirs.port() || target.kind() == RedirectKind::Loopback, "{text:?}");
    } else {
        assert_eq!(registered.as_str(), target.as_str());
    }
    assert!(!target.as_str().contains(['#', '\\', ' ', '<', '"']) && target.as_str().is_ascii(), "{text:?}");
    let answer = target.with_query("code=x");
    assert!(answer.starts_with(target.as_str()) && answer.ends_with("code=x"), "{answer:?}");
    true
}
