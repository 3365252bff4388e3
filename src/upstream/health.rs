//! Health checks. Each check opens a new connection on the control thread, so it also tests that the server accepts
//! connections.

use std::time::{Duration, Instant};

use http::{Request, StatusCode, Version, header};
use tokio::time::timeout_at;

use super::connect::Connector;
use super::failure::Failure;
use super::settings::{ExpectedStatus, HealthCheckSettings, Protocol};
use crate::protocols::http::body::Body;

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    /// The path or the server's name makes no valid request.
    #[error(transparent)]
    InvalidRequest(http::Error),
    #[error(transparent)]
    NoResponse(Failure),
    #[error("no response within {}ms", .0.as_millis())]
    Timeout(Duration),
    #[error(
        "status {}, expected {}",
        .received.as_u16(),
        .expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    )]
    Status { received: StatusCode, expected: Vec<ExpectedStatus> },
}

/// The server as a request names it.
#[derive(Clone, Copy)]
pub(super) struct CheckedServer<'s> {
    pub(super) scheme: &'s str,
    pub(super) authority: &'s str,
}

/// Checks one server until `deadline`.
pub(super) async fn check(
    connector: &Connector,
    protocol: Protocol,
    checked: CheckedServer<'_>,
    settings: &HealthCheckSettings,
    deadline: Instant,
) -> Result<(), CheckError> {
    let request = send(connector, protocol, checked, &settings.path);
    let received = match timeout_at(deadline.into(), request).await {
        Ok(status) => status?,
        Err(_) => return Err(CheckError::Timeout(settings.timeout)),
    };
    if settings.status.iter().any(|expected| expected.matches(received)) {
        Ok(())
    } else {
        Err(CheckError::Status { received, expected: settings.status.clone() })
    }
}

async fn send(
    connector: &Connector,
    protocol: Protocol,
    checked: CheckedServer<'_>,
    path: &str,
) -> Result<StatusCode, CheckError> {
    let request = Request::get(match protocol {
        Protocol::Http1 => path.to_owned(),
        Protocol::Http2 => format!("{}://{}{path}", checked.scheme, checked.authority),
    });
    let request = request.header(header::USER_AGENT, concat!("bearward/", env!("CARGO_PKG_VERSION")));
    let request = match protocol {
        Protocol::Http1 => request.header(header::HOST, checked.authority),
        Protocol::Http2 => request.version(Version::HTTP_2),
    };
    let request = request.body(Body::empty()).map_err(CheckError::InvalidRequest)?;
    let response = match protocol {
        Protocol::Http1 => {
            let (mut sender, _) = connector.connect_http1(None).await.map_err(CheckError::NoResponse)?;
            sender.send_request(request).await
        }
        Protocol::Http2 => {
            let (mut sender, _) = connector.connect_http2().await.map_err(CheckError::NoResponse)?;
            sender.send_request(request).await
        }
    };
    // The body is not read: the connection ends here.
    response.map(|response| response.status()).map_err(|error| CheckError::NoResponse(Failure::broken(error)))
}
