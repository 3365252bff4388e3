//! Many tokens at once: how many questions an endpoint gets.

use futures_util::future::join_all;

use super::endpoint::{Endpoint, response};
use super::*;
use crate::support::wait::eventually;

#[tokio::test]
async fn requests_with_one_token_wait_for_one_question() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    for (token, changes, expected) in [("alice.1", json!({}), 200), ("mallory.1", json!({ "active": false }), 401)] {
        let asked = endpoint.count();
        endpoint.answer_json(move |_| changes.clone());
        endpoint.hold();
        let requests = (0..50).map(|_| client(&gateway, token)).collect::<Vec<_>>();
        let answered = tokio::spawn(async move { join_all(requests.iter().map(|client| client.get("/"))).await });
        eventually("it is asked", || endpoint.count() > asked).await;
        endpoint.release(50);
        assert!(answered.await.expect("no panic").iter().all(|response| response.status == expected), "{token}");
        assert_eq!(endpoint.count(), asked + 1, "{token}");
    }
}

/// As for a success: 50 requests do not wait one after the other for an endpoint that does not respond.
#[tokio::test]
async fn requests_with_one_token_share_a_failure() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    endpoint.respond_with("HTTP/1.1 500 Down\r\nContent-Length: 0\r\n\r\n");
    endpoint.hold();
    let requests = (0..50).map(|_| client(&gateway, "alice.1")).collect::<Vec<_>>();
    let answered = tokio::spawn(async move { join_all(requests.iter().map(|client| client.get("/"))).await });
    eventually("it is asked", || endpoint.count() > 0).await;
    gateway.wait_for_metric("requests_in_flight", 50).await;
    endpoint.release(50);
    assert!(answered.await.expect("no panic").iter().all(|response| response.status == 503));
    assert_eq!(endpoint.count(), 1);
}

/// A request that waits for the question of another one is judged by its own time.
#[tokio::test]
async fn an_answer_that_is_too_old_for_a_waiting_request_is_not_shared() {
    let upstream = Upstream::start();
    let endpoint = Endpoint::start();
    let gateway = asking(&upstream, &endpoint, "");
    let first = client(&gateway, "alice.1");
    let late = client(&gateway, "alice.1");
    endpoint.hold();
    let first = tokio::spawn(async move { first.get("/").await });
    eventually("it is asked", || endpoint.count() == 1).await;
    gateway.advance(MINUTE);
    let late = tokio::spawn(async move { late.get("/").await });
    gateway.wait_for_metric("token_cache_misses_total", 2).await;
    endpoint.release(100);
    assert_eq!(first.await.expect("no panic").status, 200);
    assert_eq!(late.await.expect("no panic").status, 200);
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test]
async fn guesses_of_an_address_cost_few_questions() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "[limits]\nbad_signatures = 5");
    assert_eq!(status(&gateway, "alice.1").await, 200);
    endpoint.deny();
    let mut statuses = Vec::new();
    for number in 0..20 {
        statuses.push(status(&gateway, &format!("guess.{number}")).await);
    }
    assert_eq!((&statuses[..5], &statuses[5..]), (&[401; 5][..], &[429; 15][..]));
    assert_eq!(endpoint.count(), 6);
    // Known tokens do not suffer, also when it is time to ask again.
    endpoint.answer_json(|_| json!({}));
    assert_eq!(status(&gateway, "alice.1").await, 200);
    gateway.advance(MINUTE);
    assert_eq!(status(&gateway, "alice.1").await, 200);
    // Tokens that are good cost nothing.
    for number in 0..20 {
        assert_eq!(status(&gateway, &format!("bob.{number}")).await, 200, "{number}");
    }
}

/// Also with clients that do not wait for the response: a question that is given up counts as a guess.
#[tokio::test]
async fn guesses_in_flight_are_counted_at_once() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "[limits]\nbad_signatures = 5");
    endpoint.hold();
    for number in 0..5 {
        let client = client(&gateway, &format!("guess.{number}"));
        let request = tokio::spawn(async move { client.get("/").await });
        eventually("it is asked", || endpoint.count() == number + 1).await;
        request.abort();
    }
    assert_eq!((status(&gateway, "guess.5").await, endpoint.count()), (429, 5));
}

#[tokio::test]
async fn questions_in_flight_have_a_limit() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let limits = "concurrency = 2\nclient_timeout = \"1s\"\nconsecutive_timeouts = 0";
    let gateway = asking(&upstream, &endpoint, limits);
    endpoint.hold();
    let requests = (0..6).map(|number| client(&gateway, &format!("alice.{number}"))).collect::<Vec<_>>();
    let responses = join_all(requests.iter().map(|client| client.get("/"))).await;
    assert!(responses.iter().all(|response| response.status == 503));
    // The first two have no answer in time. Then two others are asked about, or give up at the same moment.
    assert!((2..=4).contains(&endpoint.count()), "{}", endpoint.count());
    endpoint.release(100);
    assert_eq!(status(&gateway, "alice.0").await, 200);
}

/// The first three questions wait for an endpoint that hangs. After that, one at a time tries it for all.
#[tokio::test]
async fn an_endpoint_that_hangs_delays_few_requests() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "client_timeout = \"2s\"");
    assert_eq!(status(&gateway, "known.1").await, 200);
    let statuses = async |name: &str, count: usize| {
        let requests = (0..count).map(|number| client(&gateway, &format!("{name}.{number}"))).collect::<Vec<_>>();
        let answered = join_all(requests.iter().map(|client| client.get("/"))).await;
        answered.iter().map(|response| response.status.as_u16()).collect::<Vec<_>>()
    };
    endpoint.hold();
    assert_eq!((statuses("alice", 3).await, endpoint.count()), (vec![503; 3], 4));
    assert_eq!((statuses("bob", 20).await, endpoint.count()), (vec![503; 20], 5));
    assert_eq!(gateway.metric("bearward_introspections_total{outcome=\"skipped\"}").await, 19.0);
    assert_eq!(status(&gateway, "known.1").await, 200);
    // The first answer ends it.
    endpoint.release(100);
    assert_eq!(status(&gateway, "carol.1").await, 200);
    assert_eq!(statuses("dora", 20).await, vec![200; 20]);
}

#[tokio::test]
async fn a_thousand_hostile_tokens_open_nothing_and_delay_no_known_one() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "[limits]\nbad_signatures = 20");
    assert_eq!(status(&gateway, "known.1").await, 200);
    upstream.forget();
    endpoint.deny();
    let hostile = |number: usize| match number % 8 {
        0 => format!("guess-{number}"),
        1 => {
            format!("{}.{}.", segment("{\"alg\":\"none\"}"), segment(format!("{{\"iss\":\"{LOGIN}\",\"n\":{number}}}")))
        }
        2 => format!("{number}.{}", "x".repeat(8_000)),
        3 => format!("{number}%0d%0aactive%3dtrue&active=true&token=known.1"),
        4 => format!("bwk_{number}"),
        5 => format!("bwr1_{number}"),
        6 => format!("{}{number}", "....".repeat(500)),
        _ => format!("{}.{number}.=", segment("{\"alg\":\"HS256\"}")),
    };
    let tokens: Vec<String> = (0..1_000).map(hostile).collect();
    for (round, batch) in tokens.chunks(50).enumerate() {
        let requests = batch.iter().map(|token| client(&gateway, token)).collect::<Vec<_>>();
        for (response, token) in join_all(requests.iter().map(|client| client.get("/"))).await.iter().zip(batch) {
            assert!(matches!(response.status.as_u16(), 400 | 401 | 429), "{} {token}", response.status);
        }
        assert!(upstream.seen().len() == round, "only the known token passes");
        assert_eq!(status(&gateway, "known.1").await, 200, "round {round}");
    }
    let asked = endpoint.count();
    assert!((2..=30).contains(&asked), "{asked} questions");
    assert!(endpoint.questions().iter().all(|question| question.form.split('&').count() == 2), "one token each");
}

/// Clients choose the tokens, and so what the endpoint says against them. One message for each would keep the gateway's
/// own messages out of the log.
#[tokio::test]
async fn changing_failures_are_one_message_in_ten_seconds() {
    let start = secrets::capture_log();
    let upstream = Upstream::start();
    let endpoint = Endpoint::start();
    let gateway = asking(&upstream, &endpoint, "");
    endpoint.respond(|token| {
        let status = if token.len() > 20 { "413 Content Too Large" } else { "400 Bad Request" };
        response(status, "text/plain", "no")
    });
    for number in 0..20 {
        for guess in [format!("guess.{number}"), format!("guess.{number}.{}", "long".repeat(10))] {
            assert_eq!(status(&gateway, &guess).await, 503);
        }
    }
    let log = secrets::logged_since(start);
    let messages = log.lines().filter(|line| line.contains("cannot ask about") && line.contains(&endpoint.url()));
    assert_eq!(messages.count(), 1, "{log}");
}
