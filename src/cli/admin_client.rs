//! Requests to the admin API of a running gateway.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;

use super::error::Cause;
use crate::admin::{SecretSource, Settings};
use crate::protocols::http::client::{self, ClientError, Limits, Tls};
use crate::protocols::reach::Reach;
use crate::protocols::tls::{self, CertificateFiles};

/// The time is longer than the gateway takes for any response: it only ends the wait for a stuck disk. The size is that
/// of a list of 100,000 sessions.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(30), body_size: 64 * 1024 * 1024, reach: Reach::Loopback, reads_body: |_| true };
/// How long to wait for a gateway that is starting.
const STARTUP_LIMIT: Duration = Duration::from_secs(5);
/// The time between two attempts to reach it.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Why there is no response, or not the expected one.
#[derive(Debug)]
pub(super) enum CallError {
    Runtime(io::Error),
    Request(http::Error),
    TokenFile {
        file: PathBuf,
        source: io::Error,
    },
    TokenVariable(String),
    /// A gateway that has just started may accept a later attempt.
    Refused {
        address: SocketAddr,
        source: ClientError,
    },
    NoResponse {
        address: SocketAddr,
        source: ClientError,
    },
    NotJson(StatusCode),
    Rejected {
        status: StatusCode,
        description: String,
        code: String,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Runtime(_) => f.write_str("cannot start the async runtime"),
            CallError::Request(_) => f.write_str("cannot make the request"),
            CallError::TokenFile { file, .. } => {
                let file = file.display();
                write!(f, "cannot read admin.token_file {file} (the gateway creates it when it starts)")
            }
            CallError::TokenVariable(name) => {
                write!(f, "the environment variable {name} (admin.token_env) is not set; set it to the admin token")
            }
            CallError::Refused { address, .. } => write!(
                f,
                "no gateway listens at admin.address {address}, and none started within {STARTUP_LIMIT:?} (is it \
                 running with this configuration?)"
            ),
            CallError::NoResponse { address, .. } => {
                write!(f, "no response from admin.address {address} (is the gateway running with this configuration?)")
            }
            CallError::NotJson(status) => {
                write!(f, "the response ({status}) is not JSON; is admin.address that of the admin listener?")
            }
            CallError::Rejected { status, description, code } => {
                write!(f, "the gateway responded {status}: {description} ({code})")
            }
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CallError::Runtime(error) | CallError::TokenFile { source: error, .. } => Some(error),
            CallError::Request(error) => Some(error),
            CallError::Refused { source, .. } | CallError::NoResponse { source, .. } => Some(source),
            CallError::TokenVariable(_) | CallError::NotJson(_) | CallError::Rejected { .. } => None,
        }
    }
}

impl CallError {
    /// The error that a response other than 2xx describes.
    pub(super) fn rejected(status: StatusCode, body: &Value) -> Self {
        let member = |name| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        CallError::Rejected { status, description: member("error_description"), code: member("error") }
    }

    /// Returns true if the gateway may be starting: it does not listen yet, or has not created its token.
    fn is_transient(&self) -> bool {
        match self {
            CallError::Refused { .. } => true,
            CallError::TokenFile { source, .. } => source.kind() == ErrorKind::NotFound,
            _ => false,
        }
    }
}

/// Sends a request, and returns the JSON of a 2xx response.
pub(super) fn call(admin: &Settings, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
    let (status, body) = send(admin, method, path, body)?;
    if status.is_success() { Ok(body) } else { Err(CallError::rejected(status, &body)) }
}

/// As [`call`], with any status.
pub(super) fn send(
    admin: &Settings,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Value), CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CallError::Runtime)?;
    let response = runtime.block_on(async {
        let (stream, token) = connect_with_retries(admin).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, admin.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .map_err(CallError::Request)?;
        let response = send_on(admin, stream, request).await;
        response.map_err(|source| CallError::NoResponse { address: admin.address, source })
    })?;
    let status = response.status();
    let body = serde_json::from_slice(response.body());
    Ok((status, body.map_err(|_| CallError::NotJson(status))?))
}

/// Returns a connection, and the token to send on it.
async fn connect_with_retries(admin: &Settings) -> Result<(TcpStream, String), CallError> {
    let start = Instant::now();
    loop {
        let attempt = async { Ok((connect(admin.address).await?, read_token(&admin.token)?)) };
        match attempt.await {
            Err(error) if CallError::is_transient(&error) && start.elapsed() < STARTUP_LIMIT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            done => return done,
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, CallError> {
    client::connect(address).await.map_err(|source| match &source {
        ClientError::Connect(error) if error.kind() == ErrorKind::ConnectionRefused => {
            CallError::Refused { address, source }
        }
        _ => CallError::NoResponse { address, source },
    })
}

async fn send_on(
    admin: &Settings,
    stream: TcpStream,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, ClientError> {
    let tls = certificate(&admin.tls).map(|certificate| {
        let config =
            tls::client_config_pinned_to(&certificate).map_err(|error| ClientError::TlsSettings(Cause::from(error)))?;
        Ok(Tls { config, server_name: ServerName::from(admin.address.ip()) })
    });
    client::send_on(stream, tls.transpose()?, request, &LIMITS).await
}

/// The certificate file of the admin listener. The request names an IP address, so the listener presents its first
/// certificate.
fn certificate(settings: &tls::Settings) -> Option<PathBuf> {
    match settings {
        tls::Settings::Off => None,
        tls::Settings::SelfSigned { folder } => Some(CertificateFiles::self_signed(folder).certificate),
        tls::Settings::Certificates(files) => files.first().map(|files| files.certificate.clone()),
    }
}

fn read_token(source: &SecretSource) -> Result<String, CallError> {
    let token = match source {
        SecretSource::File(file) => {
            fs::read_to_string(file).map_err(|source| CallError::TokenFile { file: file.clone(), source })?
        }
        SecretSource::Environment(name) => std::env::var(name).map_err(|_| CallError::TokenVariable(name.clone()))?,
    };
    Ok(token.trim().to_owned())
}
