use super::*;

const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn resources() -> Vec<OfferedResource> {
    let resource = |url: &str, scopes: &[&str]| OfferedResource {
        url: url.to_owned(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        default_scopes: scopes.iter().take(1).map(|scope| (*scope).to_owned()).collect(),
    };
    vec![
        resource("https://api.example/mcp", &["mcp"]),
        resource("https://api.example/notes", &["notes:read", "notes:write"]),
        resource("https://api.example/own", &["token:revoke", "token:introspect"]),
    ]
}

/// The request of a good client with these parameters changed. An empty value takes one away.
fn with(changed: &[(&str, &str)], resource: &[&str], client_scopes: Option<&[String]>) -> Read {
    let mut parameters = BTreeMap::from([
        ("response_type".to_owned(), "code".to_owned()),
        ("code_challenge".to_owned(), CHALLENGE.to_owned()),
        ("code_challenge_method".to_owned(), "S256".to_owned()),
        ("state".to_owned(), "xyz".to_owned()),
    ]);
    for (name, value) in changed {
        parameters.insert((*name).to_owned(), (*value).to_owned());
    }
    let resource: Vec<_> = resource.iter().map(|url| (*url).to_owned()).collect();
    let redirect_uri = RedirectUri::parse("https://app.example/callback").expect("a redirect URI");
    let offered = resources();
    read(&parameters, &resource, redirect_uri, &Offer { resources: &offered, default: Some(0), client_scopes })
}

type Read = Result<AuthorizationRequest, RequestError>;

fn code_of(read: Read) -> Option<&'static str> {
    read.err().map(|error| error.code)
}

#[test]
fn a_good_request_is_read() {
    let request = with(&[], &[], None).expect("a good request");
    assert_eq!(request.resources, ["https://api.example/mcp"]);
    assert_eq!(request.scopes, ["mcp"]);
    assert_eq!((request.state.as_deref(), request.sign_in), (Some("xyz"), SignInWish::Any));
    assert_eq!(code_of(with(&[("state", "")], &[], None)), None, "state is optional");
    assert_eq!(code_of(with(&[("response_mode", "query"), ("prompt", "consent"), ("nonce", "n")], &[], None)), None);
}

/// Hostile cases 11 to 14.
#[test]
fn only_codes_with_pkce_are_offered() {
    let long = "c".repeat(44);
    for (changed, expected) in [
        ([("response_type", "token")], "unsupported_response_type"),
        ([("response_type", "code token")], "unsupported_response_type"),
        ([("response_type", "id_token")], "unsupported_response_type"),
        ([("response_type", "")], "invalid_request"),
        ([("response_mode", "fragment")], "invalid_request"),
        ([("response_mode", "form_post")], "invalid_request"),
        ([("code_challenge", "")], "invalid_request"),
        ([("code_challenge_method", "")], "invalid_request"),
        ([("code_challenge_method", "plain")], "invalid_request"),
        ([("code_challenge", &CHALLENGE[1..])], "invalid_request"),
        ([("code_challenge", &long)], "invalid_request"),
        ([("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM")], "invalid_request"),
        ([("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-c=")], "invalid_request"),
        ([("request", "eyJ")], "request_not_supported"),
        ([("dpop_jkt", "short")], "invalid_request"),
        ([("prompt", "none login")], "invalid_request"),
        ([("max_age", "-1")], "invalid_request"),
    ] {
        assert_eq!(code_of(with(&changed, &[], None)), Some(expected), "{changed:?}");
    }
    assert_eq!(code_of(with(&[("state", &"s".repeat(1_025))], &[], None)), Some("invalid_request"));
}

/// RFC 8707; hostile case 18.
#[test]
fn a_resource_is_one_of_the_gateway() {
    let found = |resource: &[&str]| with(&[], resource, None).map(|request| request.resources);
    let notes = || Ok(vec!["https://api.example/notes".to_owned()]);
    assert_eq!(found(&["https://api.example/notes"]), notes());
    assert_eq!(found(&["HTTPS://API.example/notes"]), notes());
    assert_eq!(found(&["https://api.example/notes", "https://api.example/notes"]), notes());
    assert_eq!(found(&[""]), found(&[]), "RFC 6749 section 3.1: a parameter without a value");
    assert_eq!(found(&["https://api.example/mcp", "https://api.example/notes"]).map(|all| all.len()), Ok(2));
    for wrong in [
        "https://api.example/Notes",
        "https://api.example/notes/",
        "https://api.example/notes#x",
        "https://evil.example/notes",
        "/notes",
    ] {
        assert_eq!(found(&[wrong]).map_err(|error| error.code), Err("invalid_target"), "{wrong}");
    }
    assert_eq!(found(&["https://api.example/mcp"; 5]).map_err(|error| error.code), Err("invalid_target"));
}

#[test]
fn a_client_gets_no_scope_that_it_cannot_have() {
    let notes = &["https://api.example/notes"];
    let read_only = ["notes:read".to_owned()];
    let scopes = |scope: &str, client| with(&[("scope", scope)], notes, client).map(|request| request.scopes.join(" "));
    for (scope, client, expected) in [
        // What the challenge of the resource names.
        ("", None, Ok("notes:read")),
        ("offline_access", None, Ok("notes:read")),
        ("notes:read notes:write", None, Ok("notes:read notes:write")),
        ("notes:write offline_access", None, Ok("notes:write")),
        ("notes:write  notes:write openid", None, Ok("notes:write")),
        ("openid profile", None, Err("invalid_scope")),
        ("mcp", None, Err("invalid_scope")),
        ("", Some(&read_only[..]), Ok("notes:read")),
        ("notes:read notes:write", Some(&read_only[..]), Ok("notes:read")),
        ("notes:write", Some(&read_only[..]), Err("invalid_scope")),
    ] {
        let found = scopes(scope, client).map_err(|error| error.code);
        assert_eq!(found, expected.map(str::to_owned), "{scope} {client:?}");
    }
}

#[test]
fn no_client_gets_power_over_the_sessions_of_others() {
    let own = &["https://api.example/own"];
    assert_eq!(with(&[], own, None).map(|request| request.scopes), Ok(vec![]));
    assert_eq!(code_of(with(&[("scope", "token:revoke")], own, None)), Some("invalid_scope"));
}

#[test]
fn a_client_can_ask_for_a_new_sign_in() {
    for (changed, expected) in [
        (&[("prompt", "none")][..], SignInWish::Silent),
        (&[("prompt", "login")], SignInWish::Anew),
        (&[("prompt", "consent select_account")], SignInWish::Anew),
        (&[("prompt", "consent")], SignInWish::Any),
        (&[("max_age", "0")], SignInWish::Within(0)),
        (&[("max_age", "3600")], SignInWish::Within(3_600)),
    ] {
        assert_eq!(with(changed, &[], None).map(|request| request.sign_in), Ok(expected), "{changed:?}");
    }
}
