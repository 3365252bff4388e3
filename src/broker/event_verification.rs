//! Requests verifications of event streams (SSF section 8.1.4.2): a stream without events looks like a stream that is
//! broken, and a transmitter may end a stream if its receiver does nothing (`inactivity_timeout`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::json;
use tokio::time::sleep;

use super::event_stream::EventStream;
use super::service::Broker;
use crate::auth::credentials::{Credentials, NoToken};
use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::provider_events::stream_state;
use crate::types::clock::{Clock, Uptime};
use crate::types::reject::with_causes;

/// How often the lease is renewed, or tried to be taken.
const LEASE_INTERVAL: Duration = Duration::from_secs(5);
/// How soon a failed request is repeated.
const RETRY: Duration = Duration::from_mins(1);
/// Maximum time of a request.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// `event_stream.verification_url` and what belongs to it.
#[derive(Clone)]
pub struct EventVerification {
    pub stream: Arc<EventStream>,
    pub url: SecureUrl,
    /// CA certificates (PEM) for `https://`. `None`: the system's.
    pub ca_file: Option<PathBuf>,
    pub credentials: Credentials,
    /// `event_stream.stream_id`
    pub stream_id: String,
    /// `event_stream.verify_interval`
    pub interval: Duration,
}

/// Requests one at the start, and then regularly, until it is dropped. With several gateways, one of them does.
pub async fn verify_stream(verification: EventVerification, broker: Arc<Broker>, clock: Arc<dyn Clock>) {
    let lease = format!("event_verification {}", verification.stream.name);
    let mut due = Uptime::default();
    loop {
        if broker.holds_lease(&lease).await && clock.uptime() >= due {
            let wait = match verification.request(&broker, &*clock).await {
                Ok(()) => verification.interval,
                Err(error) => {
                    let stream = &*verification.stream.name;
                    tracing::warn!(stream, error = with_causes(&error), "cannot request a verification of the stream");
                    RETRY
                }
            };
            due = clock.uptime() + wait;
        }
        sleep(LEASE_INTERVAL).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum VerificationError {
    #[error("there is no root secret")]
    NoState,
    #[error("no access token for event_stream.verification_url")]
    NoToken(#[source] NoToken),
    #[error("cannot make the request")]
    Request(#[source] http::Error),
    #[error("no response from event_stream.verification_url")]
    NoResponse(#[source] ClientError),
    #[error("the response is {}", status_text(*.0))]
    Status(StatusCode),
}

fn status_text(status: StatusCode) -> String {
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            "429: event_stream.verify_interval is shorter than the transmitter allows".to_owned()
        }
        status => status.to_string(),
    }
}

impl EventVerification {
    /// How long a stream that works can be silent.
    pub fn longest_silence(&self) -> Duration {
        2 * self.interval
    }

    /// The event comes later, at this gateway or at another one.
    async fn request(&self, broker: &Broker, clock: &dyn Clock) -> Result<(), VerificationError> {
        let state = stream_state::new(&self.stream.name, &broker.roots, clock.now());
        let body = json!({ "stream_id": self.stream_id, "state": state.ok_or(VerificationError::NoState)? });
        let authorization = self.credentials.authorization(clock).await.map_err(VerificationError::NoToken)?;
        let request = Request::post(&self.url.target)
            .header(header::HOST, &self.url.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::AUTHORIZATION, &authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(VerificationError::Request)?;
        let limits = Limits { time: TIME_LIMIT, body_size: 0, reach: Reach::Loopback, reads_body: |_| false };
        let response = client::send_to(&self.url, self.ca_file.as_deref(), request, &limits).await;
        let status = response.map_err(VerificationError::NoResponse)?.status();
        if status == StatusCode::UNAUTHORIZED {
            self.credentials.reject(&authorization).await;
        }
        if status.is_success() { Ok(()) } else { Err(VerificationError::Status(status)) }
    }
}
