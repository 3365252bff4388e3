//! Attacks, by the hundred: each is tried on a whole gateway, byte for byte, and must be refused with its own reason while
//! the backend hears nothing of it. What `bearward explain` says about it is the same.
//!
//! The tables are data; a new attack is a new row. Two rows that send the same bytes are one attack, and fail.

mod behind;
mod corpora;
mod headers;
mod http2;
mod paths;
mod precedents;
mod tokens;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use bearward::app::explain::{Explainer, Outcome};
use bearward::types::reject::Reason;
use http::{Request, Uri};
use serde_json::Value;

use crate::support::{Gateway, Upstream, Wire};

/// Something that must not get through.
pub struct Attack {
    pub name: String,
    /// The whole request, as it is sent.
    pub sent: Vec<u8>,
    /// The same for `explain`, if a program could put it as a question at all.
    pub asked: Option<Request<()>>,
    pub reason: Reason,
}

/// What the client is told for a reason: typed in here, so that the table in `reject.rs` is checked and not repeated.
fn answer_to(reason: Reason) -> (u16, &'static str) {
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
        | Reason::LifetimeTooLong => (401, "invalid_token"),
        other => panic!("no attack in these tables ends in {other:?}"),
    }
}

/// Tries all of them, and asserts for each: its status and public code, its reason in the access log, the end of its
/// connection, the same decision by `explain`, and that the backend saw nothing.
pub async fn all_are_refused(gateway: &Gateway, upstream: &Upstream, attacks: &[Attack]) {
    let mut faults = Vec::new();
    let mut tried = HashSet::new();
    for (number, attack) in attacks.iter().enumerate() {
        assert!(tried.insert(&attack.sent), "{}: another row is the same", attack.name);
        let mut client = Wire::connect_from(address_of(number), gateway.address()).await;
        // A gateway that has seen enough may close before it has heard everything.
        let _ = client.try_send(&attack.sent).await;
        faults.extend(fault_in_answer(attack, &client.read_to_end().await));
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
    faults.extend(faults_in_explanations(gateway, attacks, &lines).await);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(upstream.seen().is_empty(), "the backend saw {:?}", upstream.seen());
}

/// One for each attack: in the log, a line is found by it.
fn address_of(number: usize) -> IpAddr {
    let [.., high, low] = u32::try_from(number + 2).expect("not that many").to_be_bytes();
    Ipv4Addr::new(127, 7, high, low).into()
}

fn fault_in_answer(attack: &Attack, heard: &str) -> Option<String> {
    let (status, code) = answer_to(attack.reason);
    let (head, body) = heard.split_once("\r\n\r\n").unwrap_or((heard, ""));
    let is_status =
        head.starts_with(&format!("HTTP/1.1 {status} ")) || head.starts_with(&format!("HTTP/1.0 {status} "));
    // A target that is no URI at all, hyper answers without a word.
    let target = attack.sent.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let is_wordless = body.is_empty() && Uri::try_from(target).is_err();
    let is_told = is_wordless || body.contains(&format!("\"error\":\"{code}\""));
    let is_once = heard.matches("HTTP/1.").count() == 1;
    (!is_status || !is_told || !is_once).then(|| format!("{}: expected {status} {code}, heard {heard:?}", attack.name))
}

async fn faults_in_explanations(gateway: &Gateway, attacks: &[Attack], lines: &[Value]) -> Vec<String> {
    let config = gateway.config();
    let explainer = Explainer::prepare(&config, gateway.clock.clone()).await.expect("it is all there");
    let mut faults = Vec::new();
    for (number, attack) in attacks.iter().enumerate() {
        let Some(request) = &attack.asked else { continue };
        let client = address_of(number).to_string();
        let line = lines.iter().find(|line| line["client"] == *client).unwrap_or(&Value::Null);
        let explained = explainer.explain(request, false).await;
        let Outcome::Rejected(refusal) = &explained.outcome else {
            faults.push(format!("{}: explain lets it through", attack.name));
            continue;
        };
        let detail = line["detail"].as_str().unwrap_or_default();
        if refusal.reason != attack.reason || refusal.detail != detail {
            faults.push(format!("{}: explain says {refusal:?}, the server {line}", attack.name));
        }
    }
    faults
}
