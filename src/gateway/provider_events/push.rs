//! `event_stream.path`: security events that a transmitter pushes (RFC 8935).

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::auth::signed_jwt::SignatureCheck;
use crate::broker::{Broker, EventRejected, EventStream};
use crate::gateway::context::RequestContext;
use crate::protocols::http::body::Body;
use crate::protocols::http::{media_type, respond};
use crate::tokens::provider_events::{EventError, EventErrorCode};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Receives the events of one stream. Keeps only a hash of the secret.
pub struct PushReceiver {
    pub stream: Arc<EventStream>,
    authorization: [u8; 32],
}

impl PushReceiver {
    /// `authorization`: the whole value of `Authorization`.
    pub fn new(stream: Arc<EventStream>, authorization: &[u8]) -> Self {
        PushReceiver { stream, authorization: secret::digest(&[authorization]) }
    }

    /// Rejects a sender without the secret of this stream, before its body is read (SSF section 6.1.1).
    pub fn check_sender(&self, headers: &HeaderMap) -> Result<(), Reject> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Reject::new(Reason::EventSender, "not one Authorization header"));
        };
        if secret::equal(&self.authorization, &secret::digest(&[value.as_bytes()])) {
            Ok(())
        } else {
            Err(Reject::new(Reason::EventSender, "another value than that of event_stream.authorization_file"))
        }
    }

    /// 202 without a body, or an error in the form of RFC 8935 section 2.4.
    pub async fn receive(
        &self,
        broker: &Broker,
        headers: &HeaderMap,
        content: &[u8],
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let received = match read_token(headers, content) {
            Ok(token) => {
                let check = SignatureCheck { repeats: true, ..context.auth().into() };
                broker.receive_event(&self.stream, token, None, check, context.event()).await
            }
            Err(error) => Err(error.into()),
        };
        match received {
            Ok(()) => Ok(accepted()),
            Err(EventRejected::Later(reject)) => Err(reject),
            Err(EventRejected::Invalid(error)) => {
                let response = rejection(&error);
                context.record.rejected = Some(Reject::new(Reason::BadSecurityEvent, error.to_string()));
                Ok(response)
            }
        }
    }
}

fn read_token<'c>(headers: &HeaderMap, content: &'c [u8]) -> Result<&'c str, EventError> {
    let invalid = |detail: &str| EventError::new(EventErrorCode::InvalidRequest, detail);
    if !media_type::is(headers, "application/secevent+jwt") {
        return Err(invalid("Content-Type is not application/secevent+jwt"));
    }
    str::from_utf8(content).map(str::trim_ascii).map_err(|_| invalid("not UTF-8"))
}

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn rejection(error: &EventError) -> Response<Body> {
    let body = json!({ "err": error.code.as_str(), "description": error.code.description() });
    let mut response = respond::json(StatusCode::BAD_REQUEST, &body);
    response.headers_mut().insert(header::CONTENT_LANGUAGE, HeaderValue::from_static("en"));
    response
}
