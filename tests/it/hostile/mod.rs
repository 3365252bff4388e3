//! Hundreds of attacks. Each is sent to a complete gateway, which must reject it with the right reason. The backend
//! must get nothing, and `bearward explain` must report the same decision.
//!
//! The tables are data: a new attack is a new row. Two rows that send the same bytes fail the test.

mod corpora;
mod headers;
mod hosts;
mod http2;
mod http2_states;
mod http2_trailers;
mod loosened;
mod paths;
mod precedents;
mod tokens;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use bearward::app::explain::Explainer;
use bearward::gateway::explanation::Outcome;
use bearward::types::reject::Reason;
use http::Request;
use serde_json::Value;

use crate::support::{Gateway, Upstream, Wire};

/// A request that the gateway must reject.
pub struct Attack {
    pub name: String,
    /// The bytes of the complete request.
    pub sent: Vec<u8>,
    /// The same request for `explain`, if the `http` crate can represent it.
    pub explained: Option<Request<()>>,
    pub reason: Reason,
}

/// The status and the code that the client gets for a reason. Written out here, as a check of the table in `reason.rs`.
fn response_to(reason: Reason) -> (u16, &'static str) {
    match reason {
        Reason::BadPath | Reason::BadHost | Reason::MalformedFraming | Reason::SeveralTokens => {
            (400, "invalid_request")
        }
        Reason::ConnectNotAllowed => (405, "invalid_request"),
        Reason::UriTooLong => (414, "invalid_request"),
        Reason::HeadTooLarge => (431, "invalid_request"),
        Reason::NoToken => (401, "unauthorized"),
        Reason::MalformedToken
        | Reason::TokenTooLarge
        | Reason::WrongType
        | Reason::ForbiddenHeader
        | Reason::AlgorithmNotAllowed
        | Reason::UnknownIssuer
        | Reason::UnknownKey
        | Reason::BadSignature
        | Reason::BadClaims
        | Reason::WrongAudience
        | Reason::Expired
        | Reason::NotYetValid
        | Reason::LifetimeTooLong
        | Reason::TokenNotBound => (401, "invalid_token"),
        other => panic!("no attack in these tables ends in {other:?}"),
    }
}

/// Sends all attacks and asserts for each: the status and the public code, the reason in the access log, the end of the
/// connection, the same decision by `explain`, and that the backend got nothing.
pub async fn assert_all_rejected(gateway: &Gateway, upstream: &Upstream, attacks: &[Attack]) {
    let mut faults = Vec::new();
    let mut tried = HashSet::new();
    for (number, attack) in attacks.iter().enumerate() {
        assert!(tried.insert(&attack.sent), "{}: another row sends the same bytes", attack.name);
        let mut client = Wire::connect_from(address_of(number), gateway.address()).await;
        // The gateway may close the connection before it has read everything.
        let _ = client.try_send(&attack.sent).await;
        faults.extend(fault_in_response(attack, &client.read_to_end().await));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let lines = gateway.log_lines(attacks.len()).await;
    for (number, attack) in attacks.iter().enumerate() {
        let client = address_of(number).to_string();
        let its: Vec<&Value> = lines.iter().filter(|line| line["client"] == *client).collect();
        match its[..] {
            [line] if line["reason"] == attack.reason.code() => {}
            _ => faults.push(format!("{}: expected a line with {:?}, found {its:?}", attack.name, attack.reason)),
        }
    }
    faults.extend(Box::pin(faults_in_explanations(gateway, attacks, &lines)).await);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(upstream.seen().is_empty(), "the backend saw {:?}", upstream.seen());
}

/// Returns a client address for each attack, which identifies its line in the log.
fn address_of(number: usize) -> IpAddr {
    let [.., high, low] = u32::try_from(number + 2).expect("fewer attacks").to_be_bytes();
    Ipv4Addr::new(127, 7, high, low).into()
}

fn fault_in_response(attack: &Attack, received: &str) -> Option<String> {
    let (status, code) = response_to(attack.reason);
    let (head, body) = received.split_once("\r\n\r\n").unwrap_or((received, ""));
    let is_status =
        head.starts_with(&format!("HTTP/1.1 {status} ")) || head.starts_with(&format!("HTTP/1.0 {status} "));
    let has_code = body.contains(&format!("\"error\":\"{code}\"")) && body.contains("\"requestId\":\"");
    let is_once = received.matches("HTTP/1.").count() == 1;
    (!is_status || !has_code || !is_once)
        .then(|| format!("{}: expected {status} {code}, received {received:?}", attack.name))
}

async fn faults_in_explanations(gateway: &Gateway, attacks: &[Attack], lines: &[Value]) -> Vec<String> {
    let config = gateway.config();
    let explainer =
        Explainer::prepare(&config, gateway.clock.clone()).await.expect("the files of the configuration exist");
    let mut faults = Vec::new();
    for (number, attack) in attacks.iter().enumerate() {
        let Some(request) = &attack.explained else { continue };
        let client = address_of(number).to_string();
        let line = lines.iter().find(|line| line["client"] == *client).unwrap_or(&Value::Null);
        let explanation = explainer.explain(request, false).await;
        let Outcome::Rejected(reject) = &explanation.outcome else {
            faults.push(format!("{}: explain accepts it", attack.name));
            continue;
        };
        let detail = line["detail"].as_str().unwrap_or_default();
        if reject.reason != attack.reason || reject.detail != detail {
            faults.push(format!("{}: explain says {reject:?}, the gateway {line}", attack.name));
        }
    }
    faults
}
