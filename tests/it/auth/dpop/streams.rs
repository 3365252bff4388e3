//! WebSockets, server-sent events and gRPC: the request that opens a stream has a proof, once.

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use serde_json::json;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{HOST, Stage, presenting, reason_for};
use crate::support::connection::{self, HttpConnection};
use crate::support::prover::Prover;
use crate::support::tokens::Mint;
use crate::support::{Client, Gateway, Upstream};

impl Stage {
    fn proof_of(&self, method: &str, url: &str, token: &str) -> String {
        self.prover.proof(method, url, token, self.now())
    }
}

/// The status of a handshake over HTTP/1.
async fn open(stage: &Stage, fields: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{HOST}/websocket").into_client_request().expect("a request");
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().expect("a header value"));
    }
    let stream = tokio::net::TcpStream::connect(stage.gateway.address()).await.expect("the gateway listens");
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

/// The same over HTTP/2 (RFC 8441).
async fn connect(stage: &Stage, token: &str, proof: &str) -> Response<Incoming> {
    let mut connection = HttpConnection::http2(stage.gateway.address()).await;
    // The client may send an extended CONNECT only after it has received the gateway's SETTINGS.
    connection.send(Request::get("/.well-known/jwks.json").body(connection::empty()).expect("a request")).await;
    let request = Request::builder().method(Method::CONNECT).uri("/websocket").header("dpop", proof);
    let request = request.header("authorization", format!("DPoP {token}"));
    let mut request = request.body(connection::empty()).expect("a request");
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    connection.send(request).await
}

#[tokio::test]
async fn a_websocket_opens_with_a_proof_of_its_handshake() {
    let stage = Stage::new("");
    let token = stage.token();
    let scheme = format!("DPoP {token}");
    let with = async |proof: &str| open(&stage, &[("authorization", &scheme), ("dpop", proof)]).await;
    assert_eq!(open(&stage, &[("authorization", &scheme)]).await, 401);
    assert_eq!(open(&stage, &[("authorization", &format!("Bearer {token}"))]).await, 401);
    for (method, url, expected) in [
        ("GET", "http://gateway.test/websocket", 101),
        ("GET", "ws://gateway.test/websocket", 101),
        ("GET", "ws://gateway.test:80/websocket", 101),
        ("GET", "wss://gateway.test/websocket", 401),
        ("GET", "https://gateway.test/websocket", 401),
        ("GET", "ws://gateway.test/other", 401),
        ("CONNECT", "ws://gateway.test/websocket", 401),
        ("POST", "ws://gateway.test/websocket", 401),
    ] {
        let proof = stage.proof_of(method, url, &token);
        assert_eq!(with(&proof).await, expected, "{method} {url}");
        assert_eq!(with(&proof).await, 401, "again: {method} {url}");
    }
    let seen = stage.upstream.seen();
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.header("dpop").is_none()), "{seen:?}");
}

/// A trusted proxy has ended the TLS of its client. Traefik then writes `wss`.
#[tokio::test]
async fn a_proof_of_a_handshake_behind_tls_has_the_scheme_wss() {
    let stage = Stage::new("[forwarding]\ntrusted = [\"127.0.0.1\"]\n");
    let token = stage.token();
    let authorization = format!("DPoP {token}");
    for proto in ["wss", "https"] {
        for (scheme, expected) in [("wss", 101), ("https", 101), ("ws", 401), ("http", 401)] {
            let proof = stage.proof_of("GET", &format!("{scheme}://{HOST}/websocket"), &token);
            let fields = [("authorization", &*authorization), ("dpop", &*proof), ("x-forwarded-proto", proto)];
            assert_eq!(open(&stage, &fields).await, expected, "{proto} {scheme}");
        }
    }
}

/// RFC 9110 section 7.8: without `Connection: Upgrade`, the field `Upgrade` asks for nothing, and the request is for
/// `http`.
#[tokio::test]
async fn only_a_handshake_has_the_schemes_of_a_websocket() {
    let stage = Stage::new("");
    let token = stage.token();
    let upgrade: &[(&str, &str)] = &[("upgrade", "websocket"), ("connection", "upgrade")];
    for (method, fields, scheme, expected) in [
        (Method::GET, &upgrade[..1], "http", 200),
        (Method::GET, &upgrade[..1], "ws", 401),
        (Method::POST, upgrade, "http", 200),
        (Method::POST, upgrade, "ws", 401),
    ] {
        let proof = stage.proof_of(method.as_str(), &format!("{scheme}://{HOST}/orders"), &token);
        let client = presenting(stage.gateway.client(), &token, &proof);
        let client = fields.iter().fold(client, |client, (name, value)| client.header(name, value));
        let response = client.send(method.clone(), "/orders", Bytes::new()).await;
        assert_eq!(response.status, expected, "{method} {fields:?} {scheme}: {response:?}");
    }
}

/// Libraries sign either method: some know only that the handshake was a GET over HTTP/1.
#[tokio::test]
async fn a_websocket_over_http2_has_two_methods() {
    let stage = Stage::new("");
    let token = stage.token();
    for (method, url, expected) in [
        ("CONNECT", "http://gateway.test/websocket", 200),
        ("GET", "http://gateway.test/websocket", 200),
        ("GET", "ws://gateway.test/websocket", 200),
        ("POST", "ws://gateway.test/websocket", 401),
        ("GET", "wss://gateway.test/websocket", 401),
    ] {
        let proof = stage.proof_of(method, url, &token);
        assert_eq!(connect(&stage, &token, &proof).await.status(), expected, "{method} {url}");
        assert_eq!(connect(&stage, &token, &proof).await.status(), 401, "again: {method} {url}");
    }
    // The scheme of a WebSocket names no other request.
    let proof = stage.proof_of("GET", "ws://gateway.test/websocket", &token);
    stage.get("/websocket", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
    let proof = stage.proof_of("CONNECT", "http://gateway.test/websocket", &token);
    stage.get("/websocket", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
}

/// Where a browser can put a token, it can put no proof: such a token is worth nothing there.
#[tokio::test]
async fn a_bound_token_in_a_subprotocol_needs_its_proof() {
    let stage = Stage::new("[[route]]\npath = \"/\"\ntoken_from = [\"websocket\", \"query:t\"]\n");
    let token = stage.token();
    let protocols = format!("bearer, {token}");
    assert_eq!(open(&stage, &[("sec-websocket-protocol", &protocols)]).await, 401);
    assert_eq!(reason_for(&stage.gateway, "/websocket").await, "proof_missing");
    let proof = stage.proof_of("GET", "ws://gateway.test/websocket", &token);
    assert_eq!(open(&stage, &[("sec-websocket-protocol", &protocols), ("dpop", &proof)]).await, 101);
    let url = format!("/orders?t={token}");
    stage.gateway.client().get(&url).await.assert_rejected(401, "invalid_dpop_proof");
    let proof = stage.proof("/orders", &token);
    assert_eq!(stage.gateway.client().header("dpop", &proof).get(&url).await.status, 200);
}

#[tokio::test]
async fn events_need_a_new_proof_for_each_connection() {
    let stage = Stage::new("");
    let token = stage.token();
    let events = async |proof: &str| {
        let mut connection = HttpConnection::of(Version::HTTP_11, stage.gateway.address()).await;
        let request = Request::get("/private/events").header("authorization", format!("DPoP {token}"));
        let request = request.header("dpop", proof).header("accept", "text/event-stream");
        connection.send(request.body(connection::empty()).expect("a request")).await
    };
    let first = stage.proof("/private/events", &token);
    let mut opened = events(&first).await;
    assert_eq!(opened.status(), 200);
    assert!(connection::next_chunk(opened.body_mut()).await.is_some());
    // `EventSource` of a browser connects again by itself. A client of ours signs again.
    assert_eq!(events(&first).await.status(), 401);
    assert_eq!(events(&stage.proof("/private/events", &token)).await.status(), 200);
}

/// One proof for a call, not for each message. A rejected call has its status, and the nonce in its headers.
#[tokio::test]
async fn a_call_of_grpc_has_a_proof() {
    let (upstream, issuer) = (Upstream::start_http2(), Mint::new(bearward::tokens::jwt::Algorithm::ES256));
    let gateway = Gateway::with_issuer(&upstream, &issuer, "");
    let gateway = gateway.restart_with(|text| {
        let text = text.replace("name = \"backend\"\n", "name = \"backend\"\nprotocol = \"h2\"\n");
        text.replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n")
    });
    let stage = Stage { upstream, gateway, issuer, prover: Prover::new() };
    let token = stage.token();
    let call = async |method: &str, nonce: Option<&str>| {
        let url = format!("http://{HOST}/bears.Kept/Unary");
        let mut draft = stage.prover.draft(method, &url, &token, stage.now());
        nonce.into_iter().for_each(|nonce| draft.claims["nonce"] = json!(nonce));
        let client = presenting(Client::http2(stage.gateway.address()), &token, &stage.prover.sign(&draft));
        let client = client.header("content-type", "application/grpc").header("te", "trailers");
        client.send(Method::POST, "/bears.Kept/Unary", Bytes::from_static(&[0; 5])).await
    };
    let asked = call("POST", None).await;
    assert_eq!((asked.status.as_u16(), asked.header("grpc-status")), (200, Some("16")), "{asked:?}");
    let nonce = asked.header("dpop-nonce").expect("a nonce").to_owned();
    let other = call("GET", Some(&nonce)).await;
    assert_eq!(other.header("grpc-status"), Some("16"), "{other:?}");
    assert!(stage.upstream.seen().is_empty());
    let answered = call("POST", Some(&nonce)).await;
    assert_eq!((answered.status.as_u16(), answered.header("grpc-status")), (200, None), "{answered:?}");
    assert_eq!(stage.upstream.only_request().header("dpop"), None);
}
