//! Messages about a response that broke off after its head: a reason and a detail in the access log, a count by server,
//! and an explanation by the request id.

use http::{Request, Version};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::points::End;
use crate::support::connection::{self, HttpConnection};
use crate::support::program::{GatewayProcess, bearward};
use crate::support::wait::{eventually, eventually_ok};
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";

/// Sends half a response to each request.
fn backend(end: End) -> ScriptedBackend {
    ScriptedBackend::start(move |mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(HALF).await;
        end.of(wire).await;
    })
}

fn get() -> Request<connection::Body> {
    Request::get("/orders").body(connection::empty()).expect("a request")
}

/// Waits until this number of responses of the only server has broken off.
async fn until_counted(gateway: &Gateway, expected: f64) {
    eventually_ok("the count by server", async || {
        match gateway.metric("bearward_upstream_server_broken_responses_total{").await {
            count if count == expected => Ok(()),
            count => Err(format!("{count} instead of {expected}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_response_that_breaks_off_has_a_reason_a_count_and_an_explanation() {
    for (end, reason) in
        [(End::Close, "upstream_broken"), (End::Reset, "upstream_broken"), (End::Stall, "upstream_timeout")]
    {
        let backend = backend(end);
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let gateway = Gateway::public(backend.address, "[timeouts]\nbody_idle = \"300ms\"");
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            // The reset can overtake the head.
            if let Ok(response) = connection.try_send(get()).await {
                response.into_body().collect().await.expect_err("half a response is none");
            }
            let line = gateway.log_lines(1).await.remove(0);
            assert_eq!((&line["status"], &line["complete"]), (&json!(200), &json!(false)), "{line}");
            assert_eq!(line["reason"], reason, "{end:?} {version:?} {line}");
            assert!(line["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{line}");
            until_counted(&gateway, 1.0).await;
            let rejections = format!("bearward_rejections_total{{reason=\"{reason}\"}}");
            assert_eq!(gateway.metric(&rejections).await, 0.0, "it got a response");
            let path = format!("/admin/v1/rejections/{}", line["request_id"].as_str().expect("an id"));
            let found = gateway.admin_client().get(&path).await.json();
            let expected = (&json!(reason), &json!(true), &json!(200), &line["detail"]);
            assert_eq!((&found["reason"], &found["broken"], &found["status"], &found["detail"]), expected, "{found}");
            let servers = gateway.admin_client().get("/admin/v1/upstreams").await.json();
            assert_eq!(servers["upstreams"][0]["servers"][0]["brokenResponses"], 1, "{servers}");
        }
    }
}

/// Neither is a fault of the server.
#[tokio::test]
async fn a_client_that_breaks_off_is_not_counted() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let request = Request::get("/large/100000000").body(connection::empty()).expect("a request");
        let mut body = connection.send(request).await.into_body();
        connection::next_chunk(&mut body).await.expect("a piece");
        connection.abort();
        drop(body);
    }
    let lines = gateway.log_lines(2).await;
    assert!(lines.iter().all(|line| line["complete"] == false && line["reason"].is_null()), "{lines:?}");
    until_counted(&gateway, 0.0).await;
}

/// As a gRPC client that cancels a call.
#[tokio::test]
async fn a_client_that_leaves_in_mid_upload_has_no_reason() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(HALF).await;
        wire.read_to_end().await;
    });
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let gateway = Gateway::public(backend.address, "");
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let (pieces, body) = connection::streamed();
        pieces.send("piece").await;
        let response = connection.send(Request::post("/").body(body).expect("a request")).await;
        connection.abort();
        drop((pieces, response));
        let line = gateway.log_lines(1).await.remove(0);
        assert_eq!((&line["status"], &line["complete"]), (&json!(200), &json!(false)), "{line}");
        assert!(line["reason"].is_null(), "{version:?} {line}");
        until_counted(&gateway, 0.0).await;
    }
}

/// The response has begun, and cannot become a 400.
#[tokio::test]
async fn an_upload_that_fails_after_the_head_of_the_response_says_why() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(HALF).await;
        wire.read_to_end().await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    client.read_until("hello").await;
    client.send("this is no chunk\r\n").await;
    let line = gateway.log_line(|line| line["complete"] == false).await;
    assert_eq!((&line["status"], &line["reason"]), (&json!(200), &json!("malformed_framing")), "{line}");
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("the body cannot be read")), "{line}");
    until_counted(&gateway, 0.0).await;
    eventually("the backend has no more of it", || backend.ended() == 1).await;
}

#[tokio::test]
async fn explain_says_why_a_response_broke_off() {
    let backend = backend(End::Close);
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::public_config(backend.address, "");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    let mut connection = HttpConnection::http2(served.addresses[0]).await;
    if let Ok(response) = connection.try_send(get()).await {
        response.into_body().collect().await.expect_err("half a response is none");
    }
    let id = eventually_ok("the request is kept", async || {
        let list: Value = served.admin_client().get("/admin/v1/rejections").await.json();
        list["rejections"][0]["requestId"].as_str().map(str::to_owned).ok_or(list.to_string())
    })
    .await;
    let output = bearward(folder.path(), &["explain", "--request-id", &id]);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    for line in ["path        /orders", "reason      upstream_broken", "decision    forwarded; the response broke off"]
    {
        assert!(printed.contains(line), "{line}:\n{printed}");
    }
}
