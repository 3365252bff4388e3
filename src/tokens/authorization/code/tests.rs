use super::*;
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::request::{AuthorizationRequest, SignInWish};
use crate::types::secret::Secret;

const NOW: UnixTime = UnixTime::from_secs(1_000_000);
const MINUTE: Duration = Duration::from_mins(1);

/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn code() -> AuthorizationCode {
    let request = AuthorizationRequest {
        redirect_uri: RedirectUri::parse("http://127.0.0.1:7777/callback").expect("a redirect URI"),
        state: None,
        challenge: CHALLENGE.into(),
        resources: vec!["https://api.example/mcp".into()],
        scopes: vec!["notes:read".into()],
        dpop_jkt: None,
        sign_in: SignInWish::Any,
        wants_consent: false,
        hints: Default::default(),
    };
    let pending = PendingRequest::begin("cli", request, "browser", NOW);
    let session = TokenId::from_bytes([7; 16]);
    let granted =
        Granted { scope: "notes:read".into(), session, label: "A command line".into(), for_authenticated: false };
    AuthorizationCode::new(&pending, granted, NOW)
}

#[test]
fn a_code_is_for_one_client_redirect_uri_and_verifier() {
    let code = code();
    assert!(code.is_of_client("cli") && !code.is_of_client("cli2") && !code.is_of_client(""));
    assert!(code.is_for("http://127.0.0.1:7777/callback") && !code.is_for("http://127.0.0.1:7778/callback"));
    assert!(code.is_of_verifier(VERIFIER));
    for wrong in ["", &VERIFIER[1..], CHALLENGE, &format!("{VERIFIER}="), &"a".repeat(129), &VERIFIER.to_lowercase()] {
        assert!(!code.is_of_verifier(wrong), "{wrong}");
    }
}

#[test]
fn a_code_ends_after_its_lifetime() {
    let second = Duration::from_secs(1);
    for (now, expected) in [
        (NOW, true),
        (NOW + MINUTE, true),
        (NOW + MINUTE + second, false),
        (NOW - CLOCK_SKEW, true),
        (NOW - CLOCK_SKEW - second, false),
    ] {
        assert_eq!(code().is_current(MINUTE, now), expected, "{now}");
    }
}

#[test]
fn a_sealed_code_fits_into_a_url_and_opens_again() {
    let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
    let code = code();
    let sealed = code.seal(&roots).expect("sealed");
    assert!(sealed.len() <= 700, "{}", sealed.len());
    assert_eq!(AuthorizationCode::open(&sealed, &roots), Some(code));
    assert_eq!(AuthorizationCode::open(&sealed[1..], &roots), None);
    assert_eq!(AuthorizationCode::open(&sealed.replace(PREFIX, "bwq1_"), &roots), None);
}

#[test]
fn two_families_of_one_code_have_two_salts() {
    let one = salt("bwc1_a");
    let other = salt("bwc1_a");
    assert!(one != other && is_salt_of(&one, "bwc1_a") && is_salt_of(&other, "bwc1_a"));
    assert!(!is_salt_of(&one, "bwc1_b"));
}
