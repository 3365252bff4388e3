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
    let response = gateway.client().send(Method::DELETE, "/", "".into()).await;
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
