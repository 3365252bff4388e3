//! How long connections to backends live.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::in_front_of;
use crate::support::session::eventually;
use crate::support::{Gateway, Scripted, Upstream, frames};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn an_idle_connection_is_closed_also_if_no_request_ever_comes_again() {
    let backend = Scripted::answering(OK);
    let gateway = in_front_of(&[backend.address], "idle_timeout = \"300ms\"");
    assert_eq!(gateway.client().get("/").await.status, 200);
    eventually("it is closed", || backend.ended() == 1).await;
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_and_a_busy_one_is_not() {
    let ended = Arc::new(AtomicUsize::new(0));
    let counts = ended.clone();
    let backend = Scripted::start(move |mut wire, number| {
        let counts = counts.clone();
        async move {
            wire.say(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            wire.hear_bytes(frames::PREFACE.len()).await;
            let asked = frames::next(&mut wire, &[frames::HEADERS]).await.stream;
            // The first answer takes its time.
            if number == 0 {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            let head = frames::END_HEADERS | frames::END_STREAM;
            wire.say(frames::frame(frames::HEADERS, head, asked, &[frames::OK])).await;
            frames::next(&mut wire, &[frames::GOAWAY]).await;
            counts.fetch_add(1, Ordering::SeqCst);
        }
    });
    let gateway = in_front_of(&[backend.address], "protocol = \"h2\"\nidle_timeout = \"300ms\"");
    for closed in 1..=2 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        eventually("it is closed", || ended.load(Ordering::SeqCst) == closed).await;
        assert_eq!(backend.connections(), closed);
    }
}

#[tokio::test]
async fn a_connection_that_is_old_enough_is_renewed_however_busy_it_is() {
    const AGE: Duration = Duration::from_millis(300);
    let backend = Scripted::answering(OK);
    let gateway = in_front_of(&[backend.address], "max_connection_age = \"300ms\"");
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        tokio::time::sleep(AGE / 6).await;
    }
    let (opened, most) = (backend.connections() as u128, began.elapsed().as_millis() / AGE.as_millis() + 1);
    assert!((most / 2..=most).contains(&opened), "{opened} of at most {most}");

    let http2 = Upstream::start_http2();
    let gateway = in_front_of(&[http2.address], "protocol = \"h2\"\nmax_connection_age = \"300ms\"");
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        tokio::time::sleep(AGE / 6).await;
    }
    let (opened, most) = (http2.connections() as u128, began.elapsed().as_millis() / AGE.as_millis() + 1);
    assert!((most / 2..=most).contains(&opened), "{opened} of at most {most}");
}

/// `localhost` is ::1 and 127.0.0.1 on most systems; the backend listens at one of them.
#[tokio::test]
async fn a_name_is_good_if_one_of_its_addresses_is() {
    let upstream = Upstream::start();
    let text = Gateway::open_text(upstream.address, "").replace("http://127.0.0.1", "http://localhost");
    let gateway = Gateway::from_text(text);
    for client in gateway.clients() {
        assert_eq!(client.get("/").await.status, 200);
    }
    let answer = gateway.admin_client().get("/admin/v1/upstreams").await.json();
    let addresses = answer["upstreams"][0]["servers"][0]["addresses"].as_array().expect("a list").clone();
    assert!(addresses.contains(&upstream.address.to_string().into()), "{answer}");
}

#[tokio::test]
async fn a_name_that_is_not_found_is_a_backend_that_cannot_be_reached() {
    let upstream = Upstream::start();
    let text = Gateway::open_text(upstream.address, "").replace("http://127.0.0.1", "http://nowhere.invalid");
    let gateway = Gateway::from_text(text);
    gateway.client().get("/").await.refused(502, "bad_gateway");
    assert_eq!(gateway.log_lines(1).await[0]["reason"], "upstream_connect");
}
