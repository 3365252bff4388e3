//! Many tokens at once: how many questions an endpoint gets.

use futures_util::future::join_all;

use super::endpoint::Endpoint;
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
    let gateway = asking(&upstream, &endpoint, "concurrency = 2\nclient_timeout = \"1s\"");
    endpoint.hold();
    let requests = (0..6).map(|number| client(&gateway, &format!("alice.{number}"))).collect::<Vec<_>>();
    let responses = join_all(requests.iter().map(|client| client.get("/"))).await;
    assert!(responses.iter().all(|response| response.status == 503));
    // The first two have no answer in time. Then two others are asked about, or give up at the same moment.
    assert!((2..=4).contains(&endpoint.count()), "{}", endpoint.count());
    endpoint.release(100);
    assert_eq!(status(&gateway, "alice.0").await, 200);
}
