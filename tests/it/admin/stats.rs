//! The statistics of the last seconds, as JSON and as an event stream.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::clock::ManualClock;
use crate::support::source;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, Upstream};

async fn stats(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin_client().get(&format!("/admin/v1/stats{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn seconds(stats: &Value) -> &[Value] {
    stats["seconds"].as_array().expect("a list")
}

/// The sum over all seconds of the number at this place.
fn sum(stats: &Value, pointer: &str) -> u64 {
    seconds(stats).iter().filter_map(|second| second.pointer(pointer)?.as_u64()).sum()
}

/// Waits until the sums are as expected, and returns the response.
async fn with_sums(gateway: &Gateway, expected: &[(&str, u64)]) -> Value {
    eventually_ok("the requests are in a second", async || {
        let stats = stats(gateway, "").await;
        let found = expected.iter().all(|(pointer, count)| sum(&stats, pointer) == *count);
        found.then(|| stats.clone()).ok_or(stats.to_string())
    })
    .await
}

#[tokio::test]
async fn a_second_has_the_requests_that_ended_in_it() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let alice = gateway.issue("alice", "read").await;
    for client in gateway.clients() {
        assert_eq!(client.get("/orders").await.status, 401);
        assert_eq!(client.clone().bearer(&alice.access).get("/orders").await.status, 200);
        assert_eq!(client.bearer(&alice.access).get("/status/503").await.status, 503);
    }
    let expected = [("/requests/2xx", 4), ("/requests/4xx", 4), ("/requests/5xx", 4), ("/rejections/no_token", 4)];
    let stats = with_sums(&gateway, &expected).await;
    assert_eq!(sum(&stats, "/requests/clientClosed"), 0);
    let busy = seconds(&stats).iter().find(|second| second["p50Seconds"].is_number()).expect("a second with requests");
    let [p50, p99] = ["p50Seconds", "p99Seconds"].map(|name| busy[name].as_f64().expect("a number"));
    assert!(p50 > 0.0 && p50 <= p99 && p99 <= 30.0, "{busy}");
    let interval = busy["interval"].as_f64().expect("a number");
    assert!((0.9..30.0).contains(&interval), "{busy}");
    let newest = &seconds(&stats)[0];
    assert_eq!(newest["tokensKnown"], 1, "{newest}");
    assert_eq!(newest["servers"], json!({ "in": 1, "returning": 0, "ejected": 0, "unhealthy": 0 }));
    assert!(newest["rejections"].as_object().expect("an object").values().all(|count| *count != 0), "{newest}");
    assert_eq!(newest["logLinesDropped"], 0);
}

#[tokio::test]
async fn what_is_open_is_shown_while_it_is_open() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let client = gateway.client();
    let hanging = tokio::spawn(async move { client.get("/hang").await.status });
    eventually_ok("the request and its connection are shown", async || {
        let stats = stats(&gateway, "?seconds=1").await;
        let second = seconds(&stats).first().ok_or("no second yet")?;
        let is_open = ["requestsInFlight", "openStreams", "openConnections"].iter().all(|name| second[name] == 1);
        is_open.then_some(()).ok_or(second.to_string())
    })
    .await;
    hanging.abort();
    with_sums(&gateway, &[("/requests/clientClosed", 1)]).await;
    eventually_ok("nothing is open", async || {
        let stats = stats(&gateway, "?seconds=1").await;
        let is_closed = ["requestsInFlight", "openConnections"].iter().all(|name| seconds(&stats)[0][name] == 0);
        is_closed.then_some(()).ok_or(stats.to_string())
    })
    .await;
}

#[tokio::test]
async fn the_newest_second_is_the_first_and_a_set_clock_is_no_matter() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let count = async |least: usize| {
        eventually_ok("seconds pass", async || {
            let stats = stats(&gateway, "?seconds=300").await;
            if seconds(&stats).len() >= least { Ok(stats) } else { Err(stats.to_string()) }
        })
        .await
    };
    let before = count(1).await;
    ManualClock::set_back(&gateway.clock, Duration::from_secs(3600));
    let after = count(seconds(&before).len() + 2).await;
    let times: Vec<&str> = seconds(&after).iter().map(|second| second["time"].as_str().expect("text")).collect();
    assert_eq!(times.last(), seconds(&before).last().and_then(|second| second["time"].as_str()).as_ref());
    assert!(times.first() < times.last(), "an hour earlier by the clock, and yet the newest: {times:?}");
    for second in seconds(&after) {
        assert!(second["interval"].as_f64().is_some_and(|interval| (0.9..30.0).contains(&interval)), "{second}");
    }
    assert_eq!(seconds(&stats(&gateway, "?seconds=2").await).len(), 2);
}

#[tokio::test]
async fn limits_that_were_hit_are_listed_by_their_key() {
    let upstream = Upstream::start();
    let text =
        Gateway::config_text(&upstream.address.to_string(), "[limits]\nuri_size = \"256B\"\ntoken_size = \"512B\"\n");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\nwrong_tokens = 1\nstreams = 0\n"));
    assert_eq!(gateway.client().get(&format!("/{}", "a".repeat(256))).await.status, 414);
    for _ in 0..2 {
        assert_eq!(gateway.client().bearer(&"x".repeat(513)).get("/").await.status, 401);
    }
    gateway.admin_client().get("/admin/v1/stats/stream").await.assert_rejected(429, "rate_limited");
    let expected = json!({ "limits.uri_size": 1, "limits.token_size": 2, "admin.streams": 1 });
    eventually_ok("the limits are listed", async || {
        let stats = stats(&gateway, "").await;
        if stats["limitsHit"] == expected { Ok(()) } else { Err(stats.to_string()) }
    })
    .await;
}

#[test]
fn each_counted_limit_is_a_key() {
    let text = source::read("src/telemetry/metrics/limits.rs");
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("    (\"")?.split_once('"')).map(|(name, _)| name).collect();
    let keys = bearward::config::keys();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        let of_list = name.replacen('.', "[].", 1);
        assert!(keys.contains(name) || keys.contains(&of_list), "{name}");
    }
}

#[tokio::test]
async fn a_wrong_number_of_seconds_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for query in ["?seconds=0", "?seconds=301", "?seconds=x", "?seconds=", "?minutes=1"] {
        let answer = gateway.admin_client().get(&format!("/admin/v1/stats{query}")).await;
        answer.assert_rejected(400, "invalid_request");
    }
    let answer = gateway.admin_client().get("/admin/v1/stats/stream?seconds=1").await;
    answer.assert_rejected(400, "invalid_request");
    assert!(answer.text().contains("expected none"), "{answer:?}");
}

/// `curl` at a stream of the admin socket.
struct Stream {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl Stream {
    fn open(folder: &Path) -> Stream {
        let socket = folder.join("bearward.db.admin");
        Self::curl(&["--unix-socket", socket.to_str().expect("UTF-8"), "http://bearward/admin/v1/stats/stream"])
    }

    fn curl(arguments: &[&str]) -> Stream {
        let mut command = Command::new("curl");
        command.args(["-sSN", "--fail-with-body"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("curl is there");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = unbounded_channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Stream { child, lines }
    }

    /// The next line, or the end.
    async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(Duration::from_secs(30), self.lines.recv()).await.expect("in time")
    }

    async fn event(&mut self) -> Value {
        let line = self.line().await.expect("an event");
        assert_eq!(self.line().await.as_deref(), Some(""), "an empty line ends an event");
        serde_json::from_str(line.strip_prefix("data: ").expect("one line of data")).expect("JSON")
    }

    /// Reads to the end. Returns true if the response ended within a minute, and was complete.
    async fn ends_complete(mut self) -> bool {
        // Two lines for each second: one that does not end must not be read for ever.
        for _ in 0..120 {
            if self.line().await.is_none() {
                return self.child.wait().expect("it is our child").success();
            }
        }
        false
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_stream_has_each_second_and_ends_with_the_gateway() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::start(&upstream);
    let mut stream = Stream::open(gateway.path());
    let first = stream.event().await;
    let mut rejected = sum(&first, "/rejections/no_token");
    assert_eq!(gateway.client().get("/").await.status, 401);
    while rejected == 0 {
        let event = stream.event().await;
        assert!(seconds(&event).len() == 1 && event["limitsHit"].is_object(), "{event}");
        rejected += sum(&event, "/rejections/no_token");
    }
    for _ in 0..2 {
        assert_eq!(sum(&stream.event().await, "/rejections/no_token"), 0, "each second is sent once");
    }
    let drained = gateway.begin_drain();
    assert!(stream.ends_complete().await);
    tokio::task::spawn_blocking(move || drained.join()).await.expect("joined").expect("no panic");
}

#[tokio::test]
async fn a_stream_ends_with_the_session_of_its_operator() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let begun = gateway.admin_client().post("/admin/v1/sessions", &json!({})).await.json();
    let token = begun["token"].as_str().unwrap_or_else(|| panic!("{begun}"));
    let url = format!("http://{}/admin/v1/stats/stream", gateway.admin_address());
    let mut stream = Stream::curl(&["-H", &format!("Authorization: Bearer {token}"), &url]);
    stream.event().await;
    let session = Client::http1(gateway.admin_address()).host("localhost").bearer(token);
    assert_eq!(session.delete("/admin/v1/sessions/current").await.status, 200);
    assert!(stream.ends_complete().await);
}

#[tokio::test]
async fn streams_are_limited_and_a_closed_one_makes_room() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\nstreams = 1\n"));
    let mut first = Stream::open(gateway.path());
    first.event().await;
    let rejected = gateway.admin_client().get("/admin/v1/stats/stream").await;
    rejected.assert_rejected(429, "rate_limited");
    assert!(rejected.text().contains("at most 1"), "{rejected:?}");
    first.child.kill().expect("killed");
    eventually_ok("the slot is free", async || {
        let mut next = Stream::open(gateway.path());
        match next.line().await {
            Some(line) if line.starts_with("data: ") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
