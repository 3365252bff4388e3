//! `[forward_auth]`

use bearward::config::{self, Probe};

use super::{check, parse, with_upstream};

#[test]
fn forward_auth_needs_a_path_a_dialect_and_callers() {
    check(&[
        ("[forward_auth]\npath = \"auth\"", "forward_auth.path", (2, 8), "does not start with `/`"),
        ("[forward_auth]\npath = \"/auth/\"", "forward_auth.path", (2, 8), "not possible for an endpoint"),
        (
            "[forward_auth]\npath = \"/tok\"\ndialect = \"prefix\"\nfrom = [\"10.0.0.5\"]",
            "forward_auth.path",
            (2, 8),
            "/token/ is a path of the gateway itself",
        ),
        ("[forward_auth]\npath = \"/user/refresh\"", "forward_auth.path", (2, 8), "is a path of the gateway"),
        (
            "[forward_auth]\npath = \"/auth\"\nfrom = [\"10.0.0.5\"]",
            "forward_auth.dialect",
            (1, 1),
            "`dialect` is missing",
        ),
        (
            "[forward_auth]\ndialect = \"nginx\"\npath = \"/auth\"\nfrom = [\"10.0.0.5\"]",
            "forward_auth.dialect",
            (2, 11),
            "x-original",
        ),
        (
            "[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"",
            "forward_auth.path",
            (2, 8),
            "every client could ask",
        ),
        (
            "[forward_auth]\nfrom = []\npath = \"/auth\"\ndialect = \"prefix\"",
            "forward_auth.path",
            (3, 8),
            "every client could ask",
        ),
        (
            "[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"\nfrom = [\"0.0.0.0/0\"]",
            "forward_auth.from[0]",
            (4, 9),
            "contains all addresses",
        ),
        (
            "[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"\nsecret_file = \"none\"",
            "forward_auth.secret_file",
            (4, 15),
            "none",
        ),
        (
            "[forward_auth]\npath = \"/auth\"\ndialect = \"ext_authz_grpc\"\nfrom = [\"10.0.0.5\"]",
            "forward_auth.path",
            (2, 8),
            "Envoy does not call this path",
        ),
        ("[forward_auth]\ndialect = \"ext_authz_grpc\"", "forward_auth.dialect", (2, 11), "every client could ask"),
        (
            "[[route]]\npath = \"/envoy.service.auth.v3.Authorization/Check\"\n[forward_auth]\n\
             dialect = \"ext_authz_grpc\"\nfrom = [\"10.0.0.5\"]",
            "forward_auth.path",
            (3, 1),
            "a route has the path /envoy",
        ),
        ("[forward_auth]\nfrom = [\"10.0.0.5\"]", "forward_auth.from", (2, 8), "no effect without `path`"),
        ("[forward_auth]\ndialect = \"prefix\"", "forward_auth.dialect", (2, 11), "no effect without `path`"),
        (
            "[[route]]\npath = \"/auth\"\n[forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\n\
             from = [\"10.0.0.5\"]",
            "forward_auth.path",
            (4, 8),
            "a route has the path /auth",
        ),
        (
            "[[route]]\npath = \"/auth/me\"\n[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"\n\
             from = [\"10.0.0.5\"]",
            "forward_auth.path",
            (4, 8),
            "a route has the path /auth/me",
        ),
        (
            "[oauth]\ntoken_endpoint = \"/auth\"\n[forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\n\
             from = [\"10.0.0.5\"]",
            "forward_auth.path",
            (4, 8),
            "oauth.token_endpoint has the path /auth",
        ),
    ]);
}

#[test]
fn a_trusted_proxy_that_may_ask_without_a_secret_is_reported() {
    let text = |from: &str| {
        with_upstream(&format!(
            "[forwarding]\ntrusted = [\"10.0.0.0/8\"]\n[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"\n\
             from = [\"{from}\"]"
        ))
    };
    let folder = tempfile::tempdir().expect("a folder");
    for (from, expected) in [("10.0.0.5", true), ("10.0.0.0/7", true), ("192.0.2.1", false)] {
        let (_, warnings) = config::parse_with_warnings(&text(from), folder.path(), Probe::None).expect("valid");
        let found: Vec<_> = warnings.all().iter().map(|warning| warning.place.key.as_str()).collect();
        assert_eq!(found, if expected { vec!["forward_auth.from"] } else { vec![] }, "{from}");
    }
    let settings = parse(&text("192.0.2.1")).expect("valid").forward_auth.expect("on");
    assert_eq!(settings.path, "/auth");
    assert!(parse(&with_upstream("[forward_auth]\npath = \"\"")).expect("valid").forward_auth.is_none());
    let grpc = "[forward_auth]\ndialect = \"ext_authz_grpc\"\nfrom = [\"192.0.2.1\"]\n";
    let settings = |more| parse(&with_upstream(&format!("{grpc}{more}"))).expect("valid").forward_auth;
    for more in ["", "path = \"/envoy.service.auth.v3.Authorization/Check\""] {
        assert_eq!(settings(more).expect("on").path, "/envoy.service.auth.v3.Authorization/Check", "{more}");
    }
    assert!(settings("path = \"\"").is_none());
}

#[test]
fn a_proxy_that_could_ask_with_the_certificate_of_a_client_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("proxy.secret");
    bearward::types::secret::write_private(&secret, b"a-secret-of-thirty-two-characters").expect("written");
    let from = |network: &str| format!("from = [\"{network}\"]\nsecret_file = \"proxy.secret\"");
    let http = "path = \"/auth\"\ndialect = \"x-forwarded\"";
    for (dialect, client_certificate, callers, expected) in [
        (http, "verified", from("10.0.0.5"), true),
        (http, "any", from("10.0.0.5"), true),
        (http, "off", from("10.0.0.5"), false),
        (http, "verified", from("192.0.2.1"), false),
        (http, "verified", "secret_file = \"proxy.secret\"".to_owned(), true),
        ("dialect = \"ext_authz_grpc\"", "verified", from("10.0.0.5"), false),
    ] {
        let text = with_upstream(&format!(
            "[forwarding]\ntrusted = [\"10.0.0.0/8\"]\nclient_certificate = \"{client_certificate}\"\n[forward_auth]\n\
             {dialect}\n{callers}"
        ));
        let (_, warnings) = config::parse_with_warnings(&text, folder.path(), Probe::None).expect("valid");
        let found: Vec<_> = warnings.all().iter().map(|warning| warning.place.key.as_str()).collect();
        let warned = if expected { vec!["forward_auth.dialect"] } else { vec![] };
        assert_eq!(found, warned, "{dialect} {client_certificate} {callers}");
    }
}
