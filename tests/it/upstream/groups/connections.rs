//! The lifetime of connections to backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::in_front_of;
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, Upstream, frames};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn an_idle_connection_is_closed_without_another_request() {
    let backend = ScriptedBackend::responding_with(OK);
    let gateway = in_front_of(&[backend.address], "idle_timeout = \"300ms\"");
    assert_eq!(gateway.client().get("/").await.status, 200);
    eventually("the connection is closed", || backend.ended() == 1).await;
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_and_a_busy_one_is_not() {
    let ended = Arc::new(AtomicUsize::new(0));
    let counter = ended.clone();
    let backend = ScriptedBackend::start(move |mut wire, number| {
        let counter = counter.clone();
        async move {
            wire.send(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            wire.read_bytes(frames::PREFACE.len()).await;
            let stream = frames::next(&mut wire, &[frames::HEADERS]).await.stream;
            // The first response is slow, so that the connection is busy longer than idle_timeout.
            if number == 0 {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            let head = frames::END_HEADERS | frames::END_STREAM;
            wire.send(frames::frame(frames::HEADERS, head, stream, &[frames::OK])).await;
            frames::next(&mut wire, &[frames::GOAWAY]).await;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let gateway = in_front_of(&[backend.address], "protocol = \"h2\"\nidle_timeout = \"300ms\"");
    for closed in 1..=2 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        eventually("the connection is closed", || ended.load(Ordering::SeqCst) == closed).await;
        assert_eq!(backend.connections(), closed);
    }
}

#[tokio::test]
async fn an_old_connection_is_replaced_even_if_it_is_busy() {
    const AGE: Duration = Duration::from_millis(300);
    let backend = ScriptedBackend::responding_with(OK);
    let gateway = in_front_of(&[backend.address], "max_connection_age = \"300ms\"");
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        // The pace of the requests, not a wait for a condition.
        tokio::time::sleep(AGE / 6).await;
    }
    let (opened, maximum) = (backend.connections() as u128, began.elapsed().as_millis() / AGE.as_millis() + 1);
    assert!((maximum / 2..=maximum).contains(&opened), "{opened} of at most {maximum}");

    let http2 = Upstream::start_http2();
    let gateway = in_front_of(&[http2.address], "protocol = \"h2\"\nmax_connection_age = \"300ms\"");
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        // The pace of the requests, not a wait for a condition.
        tokio::time::sleep(AGE / 6).await;
    }
    let (opened, maximum) = (http2.connections() as u128, began.elapsed().as_millis() / AGE.as_millis() + 1);
    assert!((maximum / 2..=maximum).contains(&opened), "{opened} of at most {maximum}");
}

/// `localhost` is ::1 and 127.0.0.1 on most systems. The backend listens at one of them.
#[tokio::test]
async fn one_reachable_address_of_a_name_is_enough() {
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "").replace("http://127.0.0.1", "http://localhost");
    let gateway = Gateway::from_text(text);
    for client in gateway.clients() {
        assert_eq!(client.get("/").await.status, 200);
    }
    let answer = gateway.admin_client().get("/admin/v1/upstreams").await.json();
    let addresses = answer["upstreams"][0]["servers"][0]["addresses"].as_array().expect("a list").clone();
    assert!(addresses.contains(&upstream.address.to_string().into()), "{answer}");
}

#[tokio::test]
async fn an_unknown_name_is_an_unreachable_backend() {
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "").replace("http://127.0.0.1", "http://nowhere.invalid");
    let gateway = Gateway::from_text(text);
    gateway.client().get("/").await.assert_rejected(502, "bad_gateway");
    assert_eq!(gateway.log_lines(1).await[0]["reason"], "upstream_connect");
}
