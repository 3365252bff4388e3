use super::*;

const APP: &str = "https://app.example";

fn policy(origins: &[&'static str], credentials: bool) -> Policy {
    let origins = match origins {
        ["*"] => Origins::Any,
        listed => Origins::Listed(listed.iter().map(|origin| HeaderValue::from_static(origin)).collect()),
    };
    let name = HeaderName::from_static;
    Policy::new(
        origins,
        credentials,
        &[name("x-csrf"), name("content-type")],
        &[name("location")],
        Duration::from_secs(60),
    )
}

fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(*name, HeaderValue::from_static(value));
    }
    map
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter().map(|value| value.to_str().expect("text"));
    values.collect::<Vec<_>>().join(" | ")
}

/// `Access-Control-Allow-Origin`, `-Credentials` and `Vary` of a response.
fn applied(policy: &Policy, origins: &[&'static str], backend: &[(&'static str, &'static str)]) -> [String; 3] {
    let mut response = map(backend);
    let request: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
    policy.apply(only_origin(&map(&request)), &mut response);
    ["access-control-allow-origin", "access-control-allow-credentials", "vary"].map(|name| text(&response, name))
}

#[test]
fn only_a_listed_origin_gets_access() {
    let policy = policy(&[APP, "http://localhost:5173"], false);
    for origin in [APP, "http://localhost:5173"] {
        assert_eq!(applied(&policy, &[origin], &[]), [origin, "", "Origin"]);
    }
    for origins in [
        &[][..],
        &["null"],
        &[""],
        &["*"],
        &["http://app.example"],
        &["https://app.example:443"],
        &["https://app.example:8443"],
        &["https://app.example/"],
        &["https://APP.example"],
        &["https://app.example.evil.example"],
        &["https://evil.example/https://app.example"],
        &["https://sub.app.example"],
        &["https://app.example https://evil.example"],
        &[APP, APP],
        &[APP, "https://evil.example"],
    ] {
        assert_eq!(applied(&policy, origins, &[]), ["", "", "Origin"], "{origins:?}");
    }
}

#[test]
fn credentials_are_allowed_only_to_listed_origins() {
    let policy = policy(&[APP], true);
    assert_eq!(applied(&policy, &[APP], &[]), [APP, "true", "Origin"]);
    assert_eq!(applied(&policy, &["https://evil.example"], &[]), ["", "", "Origin"]);
}

#[test]
fn any_origin_is_a_constant_without_vary() {
    let policy = policy(&["*"], false);
    for origins in [&[][..], &[APP], &["null"], &[APP, APP]] {
        assert_eq!(applied(&policy, origins, &[]), ["*", "", ""], "{origins:?}");
    }
}

#[test]
fn fields_of_a_backend_are_replaced() {
    let policy = policy(&[APP], false);
    let backend = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-origin", "https://evil.example"),
        ("access-control-allow-credentials", "true"),
    ];
    assert_eq!(applied(&policy, &[APP], &backend), [APP, "", "Origin"]);
    assert_eq!(applied(&policy, &["https://evil.example"], &backend), ["", "", "Origin"]);
    assert_eq!(applied(&policy, &[], &backend), ["", "", "Origin"]);
}

#[test]
fn vary_of_a_backend_is_kept() {
    let policy = policy(&[APP], false);
    for (vary, expected) in [
        ("Accept-Encoding", "Accept-Encoding | Origin"),
        ("Accept, ORIGIN", "Accept, ORIGIN"),
        ("*", "*"),
        ("X-Origin", "X-Origin | Origin"),
    ] {
        assert_eq!(applied(&policy, &[APP], &[("vary", vary)])[2], expected);
        assert_eq!(applied(&policy, &[], &[("vary", vary)])[2], expected);
    }
}

#[test]
fn a_page_reads_why_it_was_rejected() {
    let mut response = map(&[("access-control-expose-headers", "x-backend")]);
    policy(&[APP], false).apply(Some(&HeaderValue::from_static(APP)), &mut response);
    assert_eq!(
        text(&response, "access-control-expose-headers"),
        "WWW-Authenticate, Retry-After, RateLimit-Policy, RateLimit, X-Request-Id, DPoP-Nonce, location"
    );
}

#[test]
fn a_preflight_grants_the_method_that_it_asks_for() {
    let asked = map(&[("origin", APP), ("access-control-request-method", "DELETE")]);
    let method = requested_method(&asked).expect("a method");
    let response = policy(&[APP], true).preflight(&asked, &method).expect("it is granted");
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    for (name, expected) in [
        ("access-control-allow-origin", APP),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-methods", "DELETE"),
        ("access-control-allow-headers", "Authorization, Content-Type, DPoP, x-csrf"),
        ("access-control-max-age", "60"),
        ("access-control-allow-private-network", ""),
        ("vary", "Origin, Access-Control-Request-Method"),
    ] {
        assert_eq!(text(response.headers(), name), expected, "{name}");
    }
}

#[test]
fn a_preflight_of_another_origin_is_rejected() {
    for origin in ["https://evil.example", "null", ""] {
        let asked = map(&[("origin", origin), ("access-control-request-method", "GET")]);
        let rejected = policy(&[APP], true).preflight(&asked, &Method::GET).err().expect("it is rejected");
        assert_eq!(rejected.reason, Reason::CorsOrigin, "{origin}");
    }
}

#[test]
fn a_preflight_has_an_origin_and_one_valid_method() {
    let asked = [("origin", APP), ("access-control-request-method", "GET")];
    assert!(is_preflight(&Method::OPTIONS, &map(&asked)));
    assert!(!is_preflight(&Method::GET, &map(&asked)));
    assert!(!is_preflight(&Method::OPTIONS, &map(&asked[..1])));
    assert!(!is_preflight(&Method::OPTIONS, &map(&asked[1..])));
    let method = ("access-control-request-method", "GET");
    for methods in [&[][..], &[("access-control-request-method", "a b")], &[method, method]] {
        assert_eq!(requested_method(&map(methods)), None, "{methods:?}");
    }
}
