//! `[route.request_headers]` and `[route.response_headers]`: names and values that a route cannot set or remove.

use super::{assert_only_error, parse, with_upstream};

fn assert_rejected(table: &str, key: &str, item: &str, says: &str) {
    let text = format!("[identity]\nsubject = \"X-User\"\n[[route]]\npath = \"/\"\n[route.{table}]\n{key} = [{item}]");
    let column = key.len() + 5;
    assert_only_error(parse(&with_upstream(&text)), &format!("route[0].{table}.{key}[0]"), (6, column), says);
}

#[test]
fn a_value_cannot_begin_another_header() {
    for table in ["request_headers", "response_headers"] {
        for (item, says) in [
            ("\"X-A: b\\r\\nX-User: root\"", "`\\r`"),
            ("\"X-A: b\\nX-User: root\"", "`\\n`"),
            ("\"X-A: b\\u0000\"", "`\\0`"),
            ("\"X-A: b\\tc\"", "`\\t`"),
            ("\"X-A: b\\u007f\"", "printable ASCII"),
            ("\"X-A: caf\u{e9}\"", "printable ASCII"),
            ("\"X-A\\r\\nX-B: c\"", "not a header name"),
            ("\"X A: b\"", "not a header name"),
            ("\"X-A : b\"", "not a header name"),
            ("\": b\"", "not a header name"),
            ("\"X-A\"", "write a colon"),
            ("\"X-A:  \"", "name it in `remove`"),
        ] {
            assert_rejected(table, "set", item, says);
        }
    }
}

#[test]
fn a_route_cannot_set_what_identifies_or_frames_a_request() {
    for name in [
        "X-User",
        "x_user",
        "X-Auth-Scope",
        "x_auth.token-id",
        "X-Request-Id",
        "X-Forwarded-For",
        "x_forwarded_host",
        "Forwarded",
        "Proxy",
        "X-Auth-Observed",
        "Traceparent",
        "X-HTTP-Method-Override",
        "X-Bearward-Subject",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Transfer-Encoding",
        "Proxy-Authorization",
    ] {
        assert_rejected("request_headers", "set", &format!("\"{name}: a\""), "the gateway sets this header itself");
    }
    for name in [
        "Host",
        "Cookie",
        "TE",
        "Trailer",
        "Content-Length",
        "content_length",
        "Content-Type",
        "Content-Encoding",
        "Expect",
        "Sec-WebSocket-Protocol",
    ] {
        assert_rejected("request_headers", "set", &format!("\"{name}: a\""), "another meaning");
    }
    assert_rejected("request_headers", "set", "\"Authorization: Basic YTpi\"", "`token` decides");
}

#[test]
fn a_route_cannot_remove_what_a_request_needs() {
    for name in ["Host", "Authorization", "Cookie", "Content-*", "Connection", "Sec-*", "TE"] {
        assert_rejected("request_headers", "remove", &format!("\"{name}\""), "requests need this header");
    }
    assert_rejected("request_headers", "remove", "\"X-User\"", "sets this header itself");
    assert_rejected("request_headers", "remove", "\"X-A*\"", "not a header name");
    let text = "[[route]]\npath = \"/\"\n[route.request_headers]\nremove = [\"X-HTTP-Method-Override\", \"X-*\"]";
    assert!(parse(&with_upstream(text)).is_ok());
}

#[test]
fn a_route_cannot_set_what_frames_a_response() {
    for (name, says) in [
        ("Content-Length", "another meaning"),
        ("Content-Encoding", "another meaning"),
        ("Transfer-Encoding", "another meaning"),
        ("Connection", "another meaning"),
        ("Trailer", "another meaning"),
        ("Sec-WebSocket-Accept", "another meaning"),
        ("Set-Cookie", "the same cookie"),
        ("Strict-Transport-Security", "https.hsts_max_age"),
        ("Access-Control-Allow-Origin", "see [cors]"),
        ("RateLimit", "the gateway sets"),
        ("X-User", "no client gets it"),
        ("X-Bearward-Subject", "no client gets it"),
    ] {
        assert_rejected("response_headers", "set", &format!("\"{name}: a\""), says);
    }
    for name in ["Content-Length", "Transfer-*", "Connection", "Grpc-*"] {
        assert_rejected("response_headers", "remove", &format!("\"{name}\""), "responses need this header");
    }
}

#[test]
fn a_name_is_in_one_place() {
    assert_only_error(
        parse(&with_upstream("[[route]]\npath = \"/\"\n[route.request_headers]\nset = [\"X-A: 1\", \"x_a: 2\"]")),
        "route[0].request_headers.set[1]",
        (4, 18),
        "in the list twice",
    );
    assert_only_error(
        parse(&with_upstream(
            "[[route]]\npath = \"/\"\n[route.request_headers]\nset = [\"X-A: 1\"]\nremove = [\"X_A\"]",
        )),
        "route[0].request_headers.remove",
        (5, 10),
        "also in `set`",
    );
}
