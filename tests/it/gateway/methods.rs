//! Methods: which of them a route accepts, and what a 405 names.

use http::Method;

use crate::support::{Gateway, Upstream};

fn method(name: &str) -> Method {
    name.parse().expect("a method")
}

/// A backend that echoes would hand out the token that replaced the client's, and the identity headers.
#[tokio::test]
async fn trace_and_track_are_rejected() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/\"\n[[route]]\npath = \"/open\"\npublic = true\n";
    let gateway = Gateway::with_config(&upstream, routes);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        for name in ["TRACE", "TRACK", "trace", "Track"] {
            for path in ["/", "/open/a"] {
                let response = client.clone().bearer(&pair.access).send(method(name), path, "".into()).await;
                response.assert_rejected(405, "invalid_request");
                assert_eq!(response.header("allow"), Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"), "{name}");
            }
        }
        let response = client.bearer(&pair.access).send(method("PROPFIND"), "/", "".into()).await;
        assert_eq!(response.status, 200, "other methods pass");
    }
    let seen = upstream.seen();
    assert!(seen.iter().all(|seen| seen.method == "PROPFIND"), "{seen:?}");
}

/// A backend that follows the field would send the request back.
#[tokio::test]
async fn a_field_cannot_turn_a_post_into_trace() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let overrides = || {
        let seen = upstream.seen().pop().expect("the request arrived");
        seen.headers.keys().filter(|name| name.as_str().contains("method")).count()
    };
    for client in gateway.clients() {
        for name in ["X-HTTP-Method-Override", "X-Method-Override", "X_HTTP_Method"] {
            for (value, arrived) in [("TRACE", 0), ("Track", 0), ("PUT, TRACE", 0), ("PUT", 1)] {
                let response = client.clone().header(name, value).send(Method::POST, "/", "".into()).await;
                assert_eq!((response.status.as_u16(), overrides()), (200, arrived), "{name}: {value}");
            }
        }
    }
}

#[tokio::test]
async fn a_route_that_names_trace_accepts_it() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/\"\npublic = true\nmethods = [\"TRACE\", \"GET\"]\n";
    let gateway = Gateway::with_config(&upstream, routes);
    for client in gateway.clients() {
        assert_eq!(client.send(Method::TRACE, "/", "".into()).await.status, 200);
        let response = client.send(method("TRACK"), "/", "".into()).await;
        assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("TRACE, GET")));
    }
    assert!(upstream.seen().iter().all(|seen| seen.method == "TRACE"));
}

#[tokio::test]
async fn allow_names_options_on_a_route_with_preflight() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/\"\nmethods = [\"GET\", \"POST\"]\npreflight = true\n";
    let gateway = Gateway::with_config(&upstream, routes);
    let pair = gateway.issue("alice", "").await;
    let response = gateway.client().bearer(&pair.access).send(Method::DELETE, "/", "".into()).await;
    assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("GET, POST, OPTIONS")));
}

/// A client that lost its token id must not delete something of a backend.
#[tokio::test]
async fn delete_token_without_an_id_is_not_forwarded() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        client.delete("/token/").await.assert_rejected(401, "unauthorized");
        client.clone().bearer(&pair.access).delete("/token/").await.assert_rejected(404, "token_not_found");
        assert!(upstream.seen().is_empty());
        let posted = client.bearer(&pair.access).send(Method::POST, "/token/", "".into()).await;
        assert_eq!(posted.status, 200, "other methods are the backend's");
        upstream.forget();
    }
    assert_eq!(gateway.status_of(&pair.access).await, 200, "no session has ended");
}

/// RFC 9110 section 11.6.1: a client that needs a token gets a challenge. A stranger does not learn the methods of a
/// path.
#[tokio::test]
async fn the_token_is_asked_for_before_the_method_is_judged() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/write\"\nmethods = [\"POST\"]\nscopes = [\"a\"]\n\
                  [[route]]\npath = \"/write\"\nmethods = [\"PUT\"]\n\
                  [[route]]\npath = \"/mixed\"\nmethods = [\"POST\"]\n\
                  [[route]]\npath = \"/mixed\"\nmethods = [\"GET\"]\npublic = true\n\
                  [[route]]\npath = \"/proved\"\nmethods = [\"POST\"]\nproof = \"required\"\n\
                  [[route]]\npath = \"/cookie\"\nmethods = [\"POST\"]\ntoken_from = [\"login_cookie\"]\n";
    let gateway = Gateway::with_config(&upstream, routes);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        let anonymous = client.get("/write").await;
        anonymous.assert_rejected(401, "unauthorized");
        let challenge = anonymous.header("www-authenticate").expect("a challenge");
        assert!(challenge.starts_with("Bearer") && anonymous.header("allow").is_none(), "{anonymous:?}");
        client.clone().bearer("a.b.c").get("/write").await.assert_rejected(401, "invalid_token");
        let known = client.clone().bearer(&pair.access).get("/write").await;
        known.assert_rejected(405, "invalid_request");
        assert_eq!(known.header("allow"), Some("POST, PUT"));
        client.delete("/mixed").await.assert_rejected(405, "invalid_request");
        let unproved = client.get("/proved").await;
        assert!(unproved.header("www-authenticate").is_some_and(|schemes| schemes.starts_with("DPoP")), "{unproved:?}");
        // A browser without a session. Below, one with a token that could be refreshed.
        client.get("/cookie").await.assert_rejected(401, "unauthorized");
    }
    gateway.log_line(|line| line["reason"] == "no_token" && line["route"] == "/write").await;
    gateway.advance(std::time::Duration::from_hours(1));
    let cookies = format!("__Host-bearward-access={}; __Host-bearward-refresh={}", pair.access, pair.refresh);
    let stale = gateway.client().header("cookie", &cookies).get("/cookie").await;
    stale.assert_rejected(405, "invalid_request");
    assert!(stale.headers.get_all("set-cookie").iter().next().is_none(), "nothing was refreshed: {stale:?}");
    assert!(upstream.seen().is_empty());
}
