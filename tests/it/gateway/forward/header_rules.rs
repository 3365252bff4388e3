//! `[route.request_headers]` and `[route.response_headers]`: what a route sets and removes, and what no client forges.

use http::{Method, Request, Response, Version};

use crate::support::connection::{self, HttpConnection};
use crate::support::upstream::ReceivedRequest;
use crate::support::{Backend, Gateway, Upstream};

const ROUTES: &str = "
[[route]]
path = \"/\"
public = true
[route.request_headers]
set = [\"X-Tenant: acme corp\", \"Accept: text/plain\"]
remove = [\"X-Debug\", \"X-Trial-*\"]
[[route]]
path = \"/other\"
public = true
[[route]]
path = \"/all\"
[route.request_headers]
remove = [\"X-*\"]
";

fn last(upstream: &Upstream) -> ReceivedRequest {
    upstream.seen().pop().expect("the request arrived")
}

/// The fields of this name in any spelling.
fn spellings(seen: &ReceivedRequest, name: &str) -> Vec<String> {
    let folded = |name: &str| name.replace(['_', '.'], "-");
    let fields = seen.headers.iter().filter(|(field, _)| folded(field.as_str()) == name);
    fields.map(|(field, value)| format!("{field}: {}", value.to_str().expect("text"))).collect()
}

#[tokio::test]
async fn a_client_cannot_forge_a_field_that_a_route_sets() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    for client in gateway.clients() {
        for name in ["X-Tenant", "x_tenant", "X.Tenant", "X_tenant"] {
            let client = client.clone().header(name, "evil").header("X-Tenant", "evil too");
            client.get("/a").await;
            assert_eq!(spellings(&last(&upstream), "x-tenant"), ["x-tenant: acme corp"], "{name}");
            client.get("/other").await;
            assert!(spellings(&last(&upstream), "x-tenant").is_empty(), "{name}: also on a route that does not set it");
        }
        let client = client.header("Accept", "image/png").header("X_Debug", "1").header("X-Trial-A", "1");
        client.get("/a").await;
        let seen = last(&upstream);
        assert_eq!(spellings(&seen, "accept"), ["accept: text/plain"]);
        assert!(spellings(&seen, "x-debug").is_empty() && spellings(&seen, "x-trial-a").is_empty());
        client.get("/other").await;
        let seen = last(&upstream);
        assert_eq!(spellings(&seen, "accept"), ["accept: image/png"], "each client sends this one itself");
        assert_eq!(spellings(&seen, "x-debug"), ["x_debug: 1"]);
    }
}

/// `Connection` names fields that end here. It must not remove those of the gateway.
#[tokio::test]
async fn connection_cannot_nominate_a_field_that_a_route_sets() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    gateway.client().header("Connection", "close, X-Tenant").get("/a").await;
    assert_eq!(spellings(&last(&upstream), "x-tenant"), ["x-tenant: acme corp"]);
}

#[tokio::test]
async fn a_beginning_does_not_remove_fields_of_the_gateway() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        client.bearer(&pair.access).header("X-Auth-Subject", "root").header("X-Own", "1").get("/all").await;
        let seen = last(&upstream);
        assert_eq!(spellings(&seen, "x-auth-subject"), ["x-auth-subject: alice"]);
        assert!(seen.header("x-forwarded-for").is_some() && seen.header("x-request-id").is_some());
        assert!(seen.header("x-own").is_none());
    }
}

/// Some backends merge trailers into the headers.
#[tokio::test]
async fn trailers_cannot_have_what_a_route_removes() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::with_config(&upstream, &format!("protocol = \"h2\"\n{ROUTES}"));
    for (name, arrives) in [("x_tenant", false), ("x-debug", false), ("accept", false), ("x-checksum", true)] {
        let mut client = HttpConnection::http2(gateway.address()).await;
        let (sender, body) = connection::streamed();
        let request = Request::post("/a").body(body).expect("a request");
        sender.send("upload").await;
        let ending = tokio::spawn(sender.end_with(name, "evil"));
        assert_eq!(client.send(request).await.status(), 200);
        ending.await.expect("sent");
        let trailers = last(&upstream).trailers;
        assert_eq!(trailers.is_some_and(|trailers| trailers.contains_key(name)), arrives, "{name}");
    }
}

#[tokio::test]
async fn trailers_of_responses_lose_what_the_route_says() {
    let backend = Backend::start(Version::HTTP_2, async |_: Request<_>| {
        let (sender, body) = connection::streamed();
        tokio::spawn(async move {
            sender.send("hello").await;
            sender.end_with("x-powered-by", "old").await;
        });
        Response::builder().header("x-powered-by", "old").body(body).expect("a response")
    });
    let backend = backend.await;
    let text = Gateway::public_config(backend.address, backend.protocol());
    for (rules, arrives) in [("", true), ("[route.response_headers]\nremove = [\"X-Powered-*\"]\n", false)] {
        let gateway = Gateway::from_text(format!("{text}{rules}"));
        let mut client = HttpConnection::http2(gateway.address()).await;
        let request = Request::get("/").header("te", "trailers").body(connection::empty()).expect("a request");
        let response = client.send(request).await;
        assert_eq!(response.headers().contains_key("x-powered-by"), arrives);
        let (text, trailers) = connection::text_and_trailers(response.into_body()).await;
        assert_eq!(text, "hello");
        assert_eq!(trailers.is_some_and(|trailers| trailers.contains_key("x-powered-by")), arrives, "{rules}");
    }
}

#[tokio::test]
async fn responses_lose_and_get_what_the_route_says() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let backend = Backend::start(version, async |request: Request<_>| {
            let status = request.uri().path().trim_start_matches('/').parse::<u16>().unwrap_or(200);
            let response = Response::builder().status(status).header("server", "old/1.0").header("x-powered-by", "old");
            response.header("cache-control", "public").body(connection::full("hello")).expect("a response")
        });
        let backend = backend.await;
        let routes = "[route.response_headers]\nset = [\"Cache-Control: no-store\", \"X-Frame-Options: DENY\"]\n\
                      remove = [\"Server\", \"X-Powered-*\"]\n[[route]]\npath = \"/private\"\n\
                      [route.response_headers]\nset = [\"Cache-Control: public\"]";
        let text = Gateway::public_config(backend.address, backend.protocol());
        let gateway = Gateway::from_text(format!("{text}{routes}"));
        for client in gateway.clients() {
            for path in ["/200", "/404", "/500"] {
                let response = client.get(path).await;
                let fields = ["server", "x-powered-by", "cache-control", "x-frame-options"];
                let found = fields.map(|name| response.header(name));
                assert_eq!(found, [None, None, Some("no-store"), Some("DENY")], "{path}");
                assert_eq!(response.headers.get_all("cache-control").iter().count(), 1);
            }
            let rejected = client.send(Method::GET, "/private", "".into()).await;
            rejected.assert_rejected(401, "unauthorized");
            assert_eq!(rejected.header("cache-control"), Some("no-store"), "a rejection must not be cached");
        }
    }
}
