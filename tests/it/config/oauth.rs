//! `[oauth]`: the endpoints.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use bearward::config::{self, Probe};
use bearward::gateway::endpoints::{ClientEndpoint, Endpoint};
use bearward::tokens::dpop::PROOF_ALGORITHMS;
use bearward::types::secret;
use serde_json::{Value, json};

use super::{check, parse, with_upstream};

#[test]
fn endpoints_have_different_paths() {
    check(&[
        ("[oauth]\ntoken_endpoint = \"oauth/token\"", "oauth.token_endpoint", (2, 18), "does not start with `/`"),
        (
            "[oauth]\nrevocation_endpoint = \"/user/refresh\"",
            "oauth.revocation_endpoint",
            (2, 23),
            "/user/refresh is a path of the gateway",
        ),
        (
            "[oauth]\nrevocation_endpoint = \"/token/revoke\"",
            "oauth.revocation_endpoint",
            (2, 23),
            "/token is a path of the gateway",
        ),
        (
            "[oauth]\nintrospection_endpoint = \"/oauth/\"",
            "oauth.introspection_endpoint",
            (2, 26),
            "not possible for an endpoint",
        ),
        (
            "[oauth]\n\
        token_endpoint = \"/.well-known/token\"",
            "oauth.token_endpoint",
            (2, 18),
            "not possible for an endpoint",
        ),
        ("[oauth]\ntoken_endpoint = \"/oauth/%61\"", "oauth.token_endpoint", (2, 18), "percent-encoded"),
        (
            "[oauth]\ntoken_endpoint = \"/a\"\nrevocation_endpoint = \"/a\"",
            "oauth.revocation_endpoint",
            (3, 23),
            "oauth.token_endpoint has the path /a",
        ),
        (
            "[[route]]\npath = \"/a\"\n[oauth]\nintrospection_endpoint = \"/a\"",
            "oauth.introspection_endpoint",
            (4, 26),
            "a route has the same path, /a",
        ),
        (
            "[oauth]\nscopes_supported = [\"a b\"]\nresource = \"https://a\"",
            "oauth.scopes_supported[0]",
            (2, 21),
            "scope",
        ),
        ("[oauth]\nscopes_supported = [\"a\"]", "oauth.scopes_supported", (2, 20), "expected `resource`"),
    ]);
}

#[test]
fn a_resource_is_an_https_url() {
    for url in [
        "api.example",
        "http://api.example",
        "https://",
        "https://a/?b",
        "https://a/#b",
        "https://me@a/",
        "https://a/../b",
        "https://a/;b",
    ] {
        let text = format!("[oauth]\nresource = \"{url}\"");
        check(&[(text.leak(), "oauth.resource", (2, 12), "not the URL of a protected resource")]);
    }
}

#[test]
fn configured_endpoints_are_listed() {
    assert_eq!(
        parse(&with_upstream("")).expect("it is valid").oauth.enabled().count(),
        0,
        "each is off unless configured"
    );
    let text = "[oauth]\ntoken_endpoint = \"/oauth/token\"\nrevocation_endpoint = \"\"\n\
    introspection_endpoint = \"/introspect\"\nresource = \"https://a.example/v1\"\n";
    let config = parse(&with_upstream(text)).unwrap_or_else(|errors| panic!("{errors}"));
    let offered: Vec<_> = config.oauth.enabled().collect();
    assert_eq!(
        offered,
        [
            (Endpoint::Client(ClientEndpoint::Token), "/oauth/token"),
            (Endpoint::Client(ClientEndpoint::Introspect), "/introspect"),
            (Endpoint::ProtectedResource, "/.well-known/oauth-protected-resource"),
            (Endpoint::ProtectedResource, "/.well-known/oauth-protected-resource/v1"),
        ]
    );
}

#[test]
fn a_resource_server_has_an_id_and_a_long_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        secret::write_private(&folder.path().join(name), text.as_bytes()).expect("written");
    };
    std::fs::write(folder.path().join("lax"), "0123456789abcdef0123456789abcdef").expect("written");
    std::fs::set_permissions(folder.path().join("lax"), Permissions::from_mode(0o644)).expect("changed");
    write("good", "0123456789abcdef0123456789abcdef\n");
    write("short", "0123456789abcdef0123456789abcde\n");
    write("spaces", "0123456789abcdef 0123456789abcdef");
    let server = |keys: &str| format!("[[oauth.resource_server]]\n{keys}\n");
    let endpoint = "[oauth]\nintrospection_endpoint = \"/i\"\n";
    let good = server("client_id = \"a\"\nsecret_file = \"good\"");
    for (text, key, says) in [
        (server("secret_file = \"good\""), "oauth.resource_server[0].client_id", "is missing"),
        (server("client_id = \"a\""), "oauth.resource_server[0].secret_file", "is missing"),
        (
            server("client_id = \"a:b\"\nsecret_file = \"good\""),
            "oauth.resource_server[0].client_id",
            "not a client id",
        ),
        (server("client_id = \"\"\nsecret_file = \"good\""), "oauth.resource_server[0].client_id", "not a client id"),
        (server("client_id = \"a\"\nsecret_file = \"no\""), "oauth.resource_server[0].secret_file", "does not exist"),
        (server("client_id = \"a\"\nsecret_file = \"short\""), "oauth.resource_server[0].secret_file", "32 or more"),
        (server("client_id = \"a\"\nsecret_file = \"spaces\""), "oauth.resource_server[0].secret_file", "32 or more"),
        (server("client_id = \"a\"\nsecret_file = \"lax\""), "oauth.resource_server[0].secret_file", "lax"),
        (format!("{good}{good}"), "oauth.resource_server[1].client_id", "the same client_id"),
    ] {
        let text = with_upstream(&format!("{endpoint}{text}"));
        let errors = config::parse(&text, folder.path(), Probe::None).expect_err(&text);
        let error = &errors.all()[0];
        assert_eq!(error.place.key, key, "{text}");
        assert!(error.message.contains(says), "{}", error.message);
    }
    let errors = config::parse(&with_upstream(&good), folder.path(), Probe::None).expect_err("no endpoint");
    assert_eq!(errors.all()[0].place.key, "oauth.resource_server");
    let config = config::parse(&with_upstream(&format!("{endpoint}{good}")), folder.path(), Probe::None);
    let server = &config.unwrap_or_else(|errors| panic!("{errors}")).oauth.resource_servers[0];
    assert!(server.has_credentials("a", "0123456789abcdef0123456789abcdef"));
    assert!(!server.has_credentials("a", "0123456789abcdef0123456789abcdef\n"));
}

/// The well-known path comes before the path of the resource (RFC 9728 section 3.1).
#[test]
fn the_metadata_has_the_path_of_rfc_9728() {
    for (url, path) in [
        ("https://a.example", ""),
        ("https://a.example/", ""),
        ("https://a.example:8443/v1/", "/v1/"),
        ("https://[::1]/a/b", "/a/b"),
    ] {
        let text = format!(
            "[oauth]\nresource = \"{url}\"\nscopes_supported = [\"a\", \"b\"]\n[tokens]\nissuer = \"https://i.example\""
        );
        let config = parse(&with_upstream(&text)).unwrap_or_else(|errors| panic!("{errors}"));
        let [metadata] = &*config.oauth.resources.all else { panic!("one is configured") };
        let well_known = format!("/.well-known/oauth-protected-resource{path}");
        assert_eq!(metadata.resource.metadata_path, well_known, "{url}");
        let document: Value = serde_json::from_slice(&metadata.document).expect("JSON");
        let expected = json!({
            "resource": url,
            "authorization_servers": ["https://i.example"],
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": PROOF_ALGORITHMS.split(' ').collect::<Vec<_>>(),
            "scopes_supported": ["a", "b"],
        });
        assert_eq!(document, expected);
    }
}

#[test]
fn a_route_is_a_resource_below_its_own_url() {
    check(&[
        (
            "[[route]]\npath = \"/a/\"\nresource = \"https://api.example/b\"",
            "route[0].resource",
            (3, 12),
            "/b, is not the path of the route or above it",
        ),
        (
            "[[route]]\npath = \"/ab\"\nresource = \"https://api.example/a\"",
            "route[0].resource",
            (3, 12),
            "/a, is not the path of the route or above it",
        ),
        (
            "[[route]]\npath = \"/a\"\nresource = \"http://api.example/a\"",
            "route[0].resource",
            (3, 12),
            "not the URL of a protected resource",
        ),
        (
            "[[route]]\npath = \"/a\"\nhost = \"a.example\"\nresource = \"https://api.example/a\"",
            "route[0].resource",
            (4, 12),
            "another host than the route",
        ),
        (
            "[[route]]\npath = \"/a\"\npublic = true\nresource = true",
            "route[0].resource",
            (4, 12),
            "no effect on a public route",
        ),
        (
            "[[route]]\npath = \"/a\"\nresource = true\ntoken_from = [\"login_cookie\"]",
            "route[0].token_from",
            (4, 14),
            "sessions of browsers",
        ),
        ("[[route]]\npath = \"/a\"\ndefault_resource = true", "route[0].default_resource", (3, 20), "`resource`"),
        (
            "[[route]]\npath = \"/a\"\nresource = false\ndefault_resource = true",
            "route[0].default_resource",
            (4, 20),
            "`resource`",
        ),
        (
            "[[route]]\npath = \"/a\"\nresource = true\n[tokens]\nissuer = \"http://gateway.example\"",
            "route[0].resource",
            (3, 12),
            "tokens.issuer is no https:// URL",
        ),
        (
            "[[route]]\npath = \"/a\"\nresource = true\ndefault_resource = true\n\
             [[route]]\npath = \"/b\"\nresource = true\ndefault_resource = true",
            "route[1].path",
            (6, 8),
            "two resources are the default",
        ),
    ]);
    for url in ["https://api.example/a/b", "https://api.example/a", "https://api.example", "http://localhost:3000/a"] {
        let config = parse(&with_upstream(&format!("[[route]]\npath = \"/a/b/\"\nresource = \"{url}\"")));
        let route = &config.expect("valid").routes[0];
        assert_eq!(route.resource.as_ref().map(|resource| &*resource.url), Some(url));
    }
}
