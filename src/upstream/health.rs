//! Asking a server whether it is well. On the control thread, each time over a new connection: that it still lets somebody in
//! is part of the question.

use std::fmt;
use std::time::Duration;

use http::{Request, StatusCode, Version, header};
use tokio::time::timeout;

use super::connect::Dialer;
use super::{Failure, Protocol};
use crate::protocols::http::body::Body;

/// `[upstream.health_check]`
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub path: String,
    pub interval: Duration,
    /// From the first packet to the head of the answer.
    pub timeout: Duration,
    /// Checks in a row that have to pass before a server that is out returns.
    pub healthy_threshold: u32,
    /// Checks in a row that have to fail before it is left out.
    pub unhealthy_threshold: u32,
    /// Good answers.
    pub status: Vec<Statuses>,
}

/// `"204"`, or a whole class: `"2xx"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statuses {
    One(u16),
    /// The hundreds.
    Class(u16),
}

impl Statuses {
    fn hold(self, status: StatusCode) -> bool {
        match self {
            Statuses::One(one) => status.as_u16() == one,
            Statuses::Class(class) => status.as_u16() / 100 == class,
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statuses::One(one) => write!(f, "{one}"),
            Statuses::Class(class) => write!(f, "{class}xx"),
        }
    }
}

/// Is it well? If not, why.
pub(super) async fn check(
    dialer: &Dialer,
    protocol: Protocol,
    (scheme, authority): (&str, &str),
    settings: &Settings,
) -> Result<(), String> {
    let asking = ask(dialer, protocol, (scheme, authority), &settings.path);
    let status = match timeout(settings.timeout, asking).await {
        Ok(status) => status?,
        Err(_) => return Err(format!("no answer within {}ms", settings.timeout.as_millis())),
    };
    if settings.status.iter().any(|good| good.hold(status)) {
        return Ok(());
    }
    let expected: Vec<String> = settings.status.iter().map(ToString::to_string).collect();
    Err(format!("answered {}, expected {}", status.as_u16(), expected.join(" or ")))
}

async fn ask(
    dialer: &Dialer,
    protocol: Protocol,
    (scheme, authority): (&str, &str),
    path: &str,
) -> Result<StatusCode, String> {
    let request = Request::get(match protocol {
        Protocol::Http1 => path.to_owned(),
        Protocol::Http2 => format!("{scheme}://{authority}{path}"),
    });
    let request = request.header(header::USER_AGENT, concat!("bearward/", env!("CARGO_PKG_VERSION")));
    let told = |failure: Failure| failure.to_string();
    let answer = match protocol {
        Protocol::Http1 => {
            let request = request.header(header::HOST, authority).body(Body::empty());
            let request = request.map_err(|error| error.to_string())?;
            let (mut sender, _) = dialer.dial_http1(None).await.map_err(told)?;
            sender.send_request(request).await
        }
        Protocol::Http2 => {
            let request = request.version(Version::HTTP_2).body(Body::empty()).map_err(|error| error.to_string())?;
            let (mut sender, _) = dialer.dial_http2().await.map_err(told)?;
            sender.send_request(request).await
        }
    };
    // The rest of the answer is not read: the connection ends here.
    answer.map(|answer| answer.status()).map_err(|error| told(Failure::broken(error)))
}
