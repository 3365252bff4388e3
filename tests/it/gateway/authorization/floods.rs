//! Floods of requests that the gateway answers itself, with a page.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{Front, OAUTH, authorize};
use crate::support::Wire;
use crate::support::visitor::APP;

fn request() -> String {
    let url = authorize(&[]);
    let path = url.strip_prefix(APP).expect("a URL of the gateway");
    format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n")
}

/// A page is a rejection as any other: who repeats it at once waits for the next one.
#[tokio::test]
async fn after_many_pages_with_429_the_next_one_is_delayed() {
    const MANY: u32 = 15;
    let front = Front::with_calls(&format!("{OAUTH}[limits]\nretry_delay = \"50ms\"\n"), 5).await;
    let mut attacker = Wire::connect_from([127, 0, 0, 66].into(), front.gateway.address()).await;
    attacker.send(request().repeat(5)).await;
    for _ in 0..5 {
        assert_eq!(attacker.read_response().await.status, 303);
    }
    let began = Instant::now();
    attacker.send(request().repeat(10 + MANY as usize)).await;
    for _ in 0..10 + MANY {
        assert_eq!(attacker.read_response().await.status, 429);
    }
    assert!(began.elapsed() >= MANY * Duration::from_millis(50), "{:?}", began.elapsed());
}

/// They lie in the socket at once, and no backend makes any of them wait.
#[tokio::test]
async fn a_client_is_served_before_all_that_another_one_has_sent_at_once() {
    const MANY: usize = 300;
    let front = Front::with(OAUTH).await;
    let mut attacker = Wire::connect(front.gateway.address()).await;
    let mut honest = Wire::connect(front.gateway.address()).await;
    let left = Cell::new(MANY);
    let attack = async {
        attacker.send(request().repeat(MANY)).await;
        for _ in 0..MANY {
            assert_eq!(attacker.read_response().await.status, 303);
            left.set(left.get() - 1);
        }
    };
    let keys = async {
        while left.get() == MANY {
            tokio::task::yield_now().await;
        }
        honest.send("GET /.well-known/jwks.json HTTP/1.1\r\nHost: app.example\r\n\r\n").await;
        assert_eq!(honest.read_response().await.status, 200);
        assert!(left.get() > MANY / 2, "{} of {MANY} were left", left.get());
    };
    tokio::join!(attack, keys);
}
