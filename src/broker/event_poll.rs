//! Polls a transmitter for security events (RFC 8936).
//!
//! Each request acknowledges the events of the response before, after their effects are durable. A gateway that ends in
//! between gets them again, and their `jti` tells that they were carried out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, interval, sleep};

use super::event_stream::{EventRejected, EventStream};
use super::service::Broker;
use crate::auth::credentials::{Credentials, NoToken};
use crate::auth::signature_queue::SignatureQueue;
use crate::auth::signed_jwt::SignatureCheck;
use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::audit_event::EventContext;
use crate::tokens::jwt::json;
use crate::tokens::provider_events::EventError;
use crate::types::clock::Clock;
use crate::types::reject::{Reject, with_causes};
use crate::types::secret;

/// Maximum number of events in one response.
const MAX_EVENTS: usize = 100;
/// Maximum size of a response in bytes: events have at most 64 KiB, and most have one.
const MAX_RESPONSE: usize = 8 << 20;
/// How long a transmitter may wait for an event before it responds.
const TIME_LIMIT: Duration = Duration::from_secs(90);
/// How often the lease is renewed, or tried to be taken.
const LEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait after failed polls.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// `event_stream.poll_url` and what belongs to it.
#[derive(Clone)]
pub struct EventPoll {
    pub stream: Arc<EventStream>,
    pub url: SecureUrl,
    /// CA certificates (PEM) for `https://`. `None`: the system's.
    pub ca_file: Option<PathBuf>,
    pub credentials: Credentials,
    /// `event_stream.poll_interval`: the pause after a response without events.
    pub interval: Duration,
}

impl EventPoll {
    /// How long a stream that works can be silent: two polls, without an event in either.
    pub fn longest_silence(&self) -> Duration {
        2 * (self.interval + TIME_LIMIT)
    }
}

/// Polls until it is dropped.
pub async fn poll_events(poll: EventPoll, broker: Arc<Broker>, clock: Arc<dyn Clock>) {
    let lease = format!("event_stream {}", poll.stream.name);
    let mut poller = Poller { poll, clock, queue: SignatureQueue::new(), answers: Answers::default() };
    let mut failures = 0;
    loop {
        if !broker.holds_lease(&lease).await {
            sleep(LEASE_INTERVAL).await;
            continue;
        }
        let begun = Instant::now();
        let result = tokio::select! {
            result = poller.poll(&broker) => result,
            // Another gateway polls now: the lease could not be renewed in time.
            () = lost_lease(&broker, &lease) => continue,
        };
        match result {
            Ok(is_idle) => {
                failures = 0;
                if is_idle {
                    wait(&broker, &lease, poller.poll.interval.saturating_sub(begun.elapsed())).await;
                }
            }
            Err(error) => {
                failures += 1;
                let stream = &*poller.poll.stream.name;
                tracing::warn!(stream, error = with_causes(&error), "cannot poll the event stream; trying again");
                // Without the lease: another gateway may have better luck.
                sleep(backoff(failures)).await;
            }
        }
    }
}

/// Waits between two polls, and keeps the lease meanwhile, so that several gateways do not poll more often than one.
async fn wait(broker: &Broker, lease: &str, pause: Duration) {
    let due = Instant::now() + pause;
    loop {
        let left = due.saturating_duration_since(Instant::now());
        sleep(left.min(LEASE_INTERVAL)).await;
        if left <= LEASE_INTERVAL {
            return;
        }
        broker.holds_lease(lease).await;
    }
}

/// Renews the lease during a long poll. Ends when another gateway has it.
async fn lost_lease(broker: &Broker, lease: &str) {
    let mut due = interval(LEASE_INTERVAL);
    due.tick().await;
    loop {
        due.tick().await;
        if let Ok(false) = broker.with_timeout(broker.store.hold_lease(lease.to_owned())).await {
            return;
        }
    }
}

/// One second, doubling, and up to half less.
fn backoff(failures: u32) -> Duration {
    let longest = Duration::from_secs(1).saturating_mul(1 << failures.clamp(1, 16)).min(MAX_BACKOFF);
    let [random] = secret::random::<1>();
    longest.mul_f64(0.5 + f64::from(random) / 512.0)
}

struct Poller {
    poll: EventPoll,
    clock: Arc<dyn Clock>,
    queue: SignatureQueue,
    answers: Answers,
}

/// What the next request says about the events of the responses before.
#[derive(Default)]
struct Answers {
    accepted: Vec<String>,
    rejected: BTreeMap<String, EventError>,
}

/// A response of the transmitter (RFC 8936 section 2.3).
#[derive(Debug, PartialEq)]
struct Response {
    /// By `jti`.
    events: Vec<(String, String)>,
}

#[derive(Debug)]
enum PollError {
    NoToken(NoToken),
    Request(http::Error),
    NoResponse(ClientError),
    Status(StatusCode),
    NotJson(serde_json::Error),
    NoEvents,
    /// An event could not be carried out. The transmitter sends it again.
    Later(Reject),
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PollError::NoToken(_) => f.write_str("no access token for event_stream.poll_url"),
            PollError::Request(_) => f.write_str("cannot make the request"),
            PollError::NoResponse(_) => f.write_str("no response from event_stream.poll_url"),
            PollError::Status(status) => write!(f, "the response is {status}"),
            PollError::NotJson(_) => f.write_str("the response is not one JSON object"),
            PollError::NoEvents => f.write_str("the response has no member sets with a text for each jti"),
            PollError::Later(reject) => write!(f, "an event could not be carried out: {reject:?}"),
        }
    }
}

impl std::error::Error for PollError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PollError::NoToken(error) => Some(error),
            PollError::Request(error) => Some(error),
            PollError::NoResponse(error) => Some(error),
            PollError::NotJson(error) => Some(error),
            PollError::Status(_) | PollError::NoEvents | PollError::Later(_) => None,
        }
    }
}

impl Poller {
    /// One poll. Returns true if the next one may wait: it brought nothing new. A transmitter that ignores answers, or
    /// always announces more, is not polled without a pause.
    async fn poll(&mut self, broker: &Broker) -> Result<bool, PollError> {
        let response = match self.exchange().await {
            // A transmitter may hold a poll for longer.
            Err(PollError::NoResponse(ClientError::Timeout(_))) => return Ok(true),
            response => response?,
        };
        // The transmitter has these answers now.
        let answered = std::mem::take(&mut self.answers);
        broker.reports.heard_of(&self.poll.stream.name, self.clock.uptime());
        let mut later = None;
        for (jti, token) in &response.events {
            // One that has to wait does not stop those behind it.
            later = self.receive(broker, jti, token).await.err().or(later);
        }
        match later {
            Some(error) => Err(error),
            None => Ok(!response.events.iter().any(|(jti, _)| !answered.has(jti))),
        }
    }

    async fn receive(&mut self, broker: &Broker, jti: &str, token: &str) -> Result<(), PollError> {
        let check = SignatureCheck { clock: &*self.clock, payer: None, queue: &self.queue, repeats: true };
        let context = EventContext::from(self.clock.now());
        match broker.receive_event(&self.poll.stream, token, Some(jti), check, context).await {
            Ok(()) => self.answers.accepted.push(jti.to_owned()),
            Err(EventRejected::Invalid(error)) => {
                let (stream, detail) = (&*self.poll.stream.name, error.to_string());
                tracing::warn!(stream, error = detail, "rejected a security event");
                self.answers.rejected.insert(jti.to_owned(), error);
            }
            Err(EventRejected::Later(reject)) => return Err(PollError::Later(reject)),
        }
        Ok(())
    }

    async fn exchange(&self) -> Result<Response, PollError> {
        let EventPoll { url, credentials, .. } = &self.poll;
        let authorization = credentials.authorization(&*self.clock).await.map_err(PollError::NoToken)?;
        let request = Request::post(&url.target)
            .header(header::HOST, &url.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::AUTHORIZATION, &authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Full::new(Bytes::from(self.answers.request().to_string())))
            .map_err(PollError::Request)?;
        let reads_body = |head: &Parts| head.status == StatusCode::OK;
        let limits = Limits { time: TIME_LIMIT, body_size: MAX_RESPONSE, reach: Reach::Loopback, reads_body };
        let response = client::send_to(url, self.poll.ca_file.as_deref(), request, &limits).await;
        let response = response.map_err(PollError::NoResponse)?;
        match response.status() {
            StatusCode::OK => read_response(response.body()),
            status => {
                if status == StatusCode::UNAUTHORIZED {
                    credentials.reject(&authorization).await;
                }
                Err(PollError::Status(status))
            }
        }
    }
}

impl Answers {
    fn has(&self, jti: &str) -> bool {
        self.rejected.contains_key(jti) || self.accepted.iter().any(|accepted| accepted == jti)
    }

    /// RFC 8936 section 2.2. Without answers, the transmitter may wait for an event.
    fn request(&self) -> Value {
        let errors = self.rejected.iter().map(|(jti, error)| {
            (jti.clone(), json!({ "err": error.code.as_str(), "description": error.code.description() }))
        });
        let mut request = json!({ "maxEvents": MAX_EVENTS, "returnImmediately": false, "ack": self.accepted });
        if !self.rejected.is_empty() {
            request["setErrs"] = Value::Object(errors.collect::<Map<_, _>>());
        }
        request
    }
}

fn read_response(content: &[u8]) -> Result<Response, PollError> {
    let mut response = json::object(content).map_err(PollError::NotJson)?;
    let Some(Value::Object(sets)) = response.remove("sets") else { return Err(PollError::NoEvents) };
    let event = |(jti, token): (String, Value)| match token {
        Value::String(token) => Ok((jti, token)),
        _ => Err(PollError::NoEvents),
    };
    let events = sets.into_iter().map(event).collect::<Result<_, _>>()?;
    // `moreAvailable` changes nothing: after events, the next poll comes at once.
    Ok(Response { events })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::provider_events::EventErrorCode;

    #[test]
    fn a_request_answers_the_events_before() {
        let nothing = json!({ "maxEvents": 100, "returnImmediately": false, "ack": [] });
        assert_eq!(Answers::default().request(), nothing);
        let error = EventError::new(EventErrorCode::InvalidAudience, "only for the log");
        let answers = Answers { accepted: vec!["j1".into()], rejected: [("j2".to_owned(), error)].into() };
        let expected = json!({
            "maxEvents": 100, "returnImmediately": false, "ack": ["j1"],
            "setErrs": { "j2": { "err": "invalid_audience", "description": "aud is not the audience of this stream" } },
        });
        assert_eq!(answers.request(), expected);
    }

    #[test]
    fn a_response_has_a_token_for_each_jti() {
        let read = |text: &str| read_response(text.as_bytes()).ok();
        let response = |events: &[(&str, &str)]| {
            let events = events.iter().map(|(jti, token)| ((*jti).to_owned(), (*token).to_owned())).collect();
            Some(Response { events })
        };
        for (text, expected) in [
            (r#"{"sets":{}}"#, response(&[])),
            (r#"{"sets":{"a":"x.y.z","b":"u.v.w"},"moreAvailable":true}"#, response(&[("a", "x.y.z"), ("b", "u.v.w")])),
            (r#"{"sets":{},"moreAvailable":true}"#, response(&[])),
            (r#"{"sets":{"a":{}}}"#, None),
            (r#"{"sets":["a"]}"#, None),
            (r#"{"sets":{"a":"x","a":"y"}}"#, None),
            ("{}", None),
            ("[]", None),
            ("", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn failed_polls_are_further_and_further_apart() {
        for (failures, longest) in [(1, 2), (2, 4), (3, 8), (6, 60), (60, 60)] {
            let (wait, longest) = (backoff(failures), Duration::from_secs(longest));
            assert!(wait >= longest / 2 && wait <= longest, "{failures}: {wait:?}");
        }
    }
}
