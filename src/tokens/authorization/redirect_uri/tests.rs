use super::*;

fn parsed(text: &str) -> RedirectUri {
    RedirectUri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_redirect_uri_has_one_of_three_kinds() {
    for (text, kind, host) in [
        ("https://app.example/callback", RedirectKind::Https, Some("app.example")),
        ("https://app.example", RedirectKind::Https, Some("app.example")),
        ("https://app.example:8443/a?b=c", RedirectKind::Https, Some("app.example")),
        ("https://[2001:db8::1]/a", RedirectKind::Https, Some("[2001:db8::1]")),
        ("http://127.0.0.1/callback", RedirectKind::Loopback, Some("127.0.0.1")),
        ("http://[::1]:7777/callback", RedirectKind::Loopback, Some("[::1]")),
        ("http://localhost:3000/", RedirectKind::Loopback, Some("localhost")),
        ("com.example.app:/callback", RedirectKind::PrivateScheme { has_dot: true }, None),
        ("com.example.app://callback", RedirectKind::PrivateScheme { has_dot: true }, None),
        ("cursor://anysphere.cursor-mcp/oauth/callback", RedirectKind::PrivateScheme { has_dot: false }, None),
    ] {
        let uri = parsed(text);
        assert_eq!((uri.kind(), uri.host(), uri.as_str()), (kind, host, text));
    }
}

/// Hostile cases 7 and 8, and what else other servers have accepted.
#[test]
fn no_code_goes_to_a_text_that_is_read_in_two_ways() {
    for text in [
        "",
        "/callback",
        "app.example/callback",
        "//app.example/callback",
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java%0ascript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "blob:https://app.example/x",
        "about:blank",
        "mailto:a@b",
        "ws://app.example/",
        "http://app.example/callback",
        "http://127.0.0.1.evil.example/",
        "http://127.0.0.2/",
        "http://localhost.evil.example/",
        "HTTPS://app.example/",
        "https:app.example/",
        "https:/app.example/",
        "https:///callback",
        "https://app.example/#fragment",
        "https://user@app.example/",
        "https://user:secret@app.example/",
        "https://app.example@evil.example/",
        "https://app.example\\.evil.example/",
        "https://app.example/\r\nSet-Cookie: a=b",
        "https://app.example/a b",
        "https://\u{e4}pp.example/",
        "https://App.example/",
        "https://*.app.example/",
        "https://app.example/*",
        "https://app.example/a/../b",
        "https://app.example/a/%2e%2E/b",
        "https://app.example/./b",
        "https://app.example/%00",
        "https://app.example/%2fevil",
        "https://app.example:/",
        "https://app.example:0/",
        "https://app.example:99999/",
        "https://app.example:80a/",
        "https://app.example:+443/",
        "http://127.0.0.1:+80/callback",
        "http://127.0.0.1:00080/callback",
        "https://.app.example/",
        "https://app.example./",
        "https://app..example/",
        "https://[::1/",
        "https://[zz]/",
        "com.example.app:callback",
        "1com.example:/x",
        "x:/a@b",
    ] {
        assert!(RedirectUri::parse(text).is_err(), "{text:?}");
    }
    let longest = format!("https://app.example/{}", "a".repeat(MAX_LEN - 20));
    assert!(RedirectUri::parse(&longest).is_ok() && RedirectUri::parse(&format!("{longest}a")).is_err());
}

/// RFC 8252 section 7.3; hostile cases 2 to 5.
#[test]
fn only_the_port_of_a_loopback_address_may_differ() {
    let target = |registered: &str, requested: &str| parsed(registered).target(requested).map(String::from);
    for (registered, requested) in [
        ("https://app.example/callback", "https://app.example/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:1/callback"),
        ("http://127.0.0.1:5000/callback", "http://127.0.0.1:1/callback"),
        ("http://127.0.0.1:5000/callback", "http://127.0.0.1/callback"),
        ("http://[::1]/callback", "http://[::1]:65535/callback"),
        ("http://localhost/a?b=c", "http://localhost:80/a?b=c"),
    ] {
        assert_eq!(target(registered, requested).as_deref(), Some(requested), "{registered}");
    }
    for (registered, requested) in [
        ("https://app.example/callback", "https://app.example:443/callback"),
        ("https://app.example/callback", "https://app.example/callback/"),
        ("https://app.example/callback", "https://app.example/Callback"),
        ("https://app.example/callback", "https://app.example/callback?a=b"),
        ("https://app.example/callback", "https://app.example/call%62ack"),
        ("https://app.example/callback", "https://evil.example/callback"),
        ("http://127.0.0.1/callback", "http://localhost:1/callback"),
        ("http://127.0.0.1/callback", "https://127.0.0.1/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:1/callback?a"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:1/other"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:1@evil.example/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:x/callback"),
        ("com.example.app:/callback", "com.example.app:/callback2"),
    ] {
        assert_eq!(target(registered, requested), None, "{registered} {requested}");
    }
}

#[test]
fn the_answer_is_added_to_the_query() {
    assert_eq!(parsed("https://app.example/a").with_query("code=x"), "https://app.example/a?code=x");
    assert_eq!(parsed("https://app.example/a?b=c").with_query("code=x"), "https://app.example/a?b=c&code=x");
}

#[test]
fn the_operator_learns_which_part_differs() {
    let registered = [parsed("https://app.example/oauth/callback"), parsed("http://127.0.0.1/callback")];
    for (requested, expected) in [
        ("https://app.example/callback", "the host is registered, and the port, the path or the query differs"),
        ("https://evil.example/oauth/callback", "no registered one has this host"),
        ("com.example.app:/callback", "no registered one has this scheme"),
        ("javascript:alert(1)", "it is not possible for any client"),
    ] {
        assert_eq!(difference(&registered, requested), expected);
    }
}

#[test]
fn a_sealed_redirect_uri_is_parsed_again() {
    let uri = parsed("https://app.example/a");
    let text = serde_json::to_string(&uri).expect("JSON");
    assert_eq!(serde_json::from_str::<RedirectUri>(&text).expect("a redirect URI"), uri);
    assert!(serde_json::from_str::<RedirectUri>("\"javascript:x\"").is_err());
}
