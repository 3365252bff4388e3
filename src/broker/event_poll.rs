//! Polls a transmitter for security events (RFC 8936).
//!
//! Each request acknowledges the events of the response before, after their effects are durable. A gateway that ends in
//! between gets them again, and their `jti` tells that they were carried out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Map, Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, interval, sleep};

use super::event_stream::{EventRejected, EventStream, shown};
use super::polled_events::{self, BadResponse, MAX_EVENTS, PolledEvents};
use super::service::Broker;
use crate::auth::credentials::{Credentials, NoToken};
use crate::auth::signature_queue::SignatureQueue;
use crate::auth::signed_jwt::SignatureCheck;
use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::audit_event::EventContext;
use crate::tokens::provider_events::EventError;
use crate::types::clock::Clock;
use crate::types::reject::{Reject, with_causes};
use crate::types::secret;

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

#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("no access token for event_stream.poll_url")]
    NoToken(#[source] NoToken),
    #[error("cannot make the request")]
    Request(#[source] http::Error),
    #[error("no response from event_stream.poll_url")]
    NoResponse(#[source] ClientError),
    #[error("the response is {0}")]
    Status(StatusCode),
    #[error(transparent)]
    BadResponse(BadResponse),
    /// An event could not be carried out. The transmitter sends it again.
    #[error("an event could not be carried out: {0:?}")]
    Later(Reject),
}

impl Poller {
    /// One poll. Returns true if the next one may wait: it brought no new event that was accepted. A transmitter that
    /// ignores answers, sends garbage, or always announces more, is not polled without a pause.
    async fn poll(&mut self, broker: &Broker) -> Result<bool, PollError> {
        let PolledEvents { events, skipped } = match self.exchange().await {
            // A transmitter may hold a poll for longer.
            Err(PollError::NoResponse(ClientError::Timeout(_))) => return Ok(true),
            response => response?,
        };
        // The transmitter has these answers now.
        let answered = std::mem::take(&mut self.answers);
        broker.reports.heard_of(&self.poll.stream.name, self.clock.uptime());
        let mut later = None;
        for (jti, token) in &events {
            // One that has to wait does not stop those behind it.
            later = self.receive(broker, jti, token).await.err().or(later);
            // A bad event is rejected without waiting for anything.
            yield_now().await;
        }
        self.report(skipped);
        match later {
            Some(error) => Err(error),
            None => Ok(!self.answers.accepted.iter().any(|jti| !answered.has(jti))),
        }
    }

    async fn receive(&mut self, broker: &Broker, jti: &str, token: &str) -> Result<(), PollError> {
        let check = SignatureCheck { clock: &*self.clock, payer: None, queue: &self.queue, repeats: true };
        let context = EventContext::from(self.clock.now());
        match broker.receive_event(&self.poll.stream, token, Some(jti), check, context).await {
            Ok(()) => self.answers.accepted.push(jti.to_owned()),
            Err(EventRejected::Invalid(error)) => drop(self.answers.rejected.insert(jti.to_owned(), error)),
            Err(EventRejected::Later(reject)) => return Err(PollError::Later(reject)),
        }
        Ok(())
    }

    /// Logs one line for each response, not one for each event: a transmitter could fill the log.
    fn report(&self, skipped: usize) {
        let stream = &*self.poll.stream.name;
        if let Some((jti, first)) = self.answers.rejected.iter().next() {
            let rejected = self.answers.rejected.len();
            let error = first.to_string();
            tracing::warn!(stream, rejected, jti = shown(jti), error, "rejected security events");
        }
        if skipped > 0 {
            tracing::warn!(
                stream,
                skipped,
                "the transmitter sent more than {MAX_EVENTS} events; polling again for the rest"
            );
        }
    }

    async fn exchange(&self) -> Result<PolledEvents, PollError> {
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
            StatusCode::OK => polled_events::read(response.body()).map_err(PollError::BadResponse),
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
    fn failed_polls_are_further_and_further_apart() {
        for (failures, longest) in [(1, 2), (2, 4), (3, 8), (6, 60), (60, 60)] {
            let wait = backoff(failures);
            let longest = Duration::from_secs(longest);
            assert!(wait >= longest / 2 && wait <= longest, "{failures}: {wait:?}");
        }
    }
}
