//! Requests to the admin API of a running gateway, through its Unix socket.
//!
//! The kernel names the user of each side to the other, so no token is sent.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::protocols::http::client::{self, ClientError, Limits};
use crate::protocols::local_socket;
use crate::protocols::reach::Reach;
use crate::types::barrier::barrier;
use crate::types::owner::User;
use crate::types::process::ROOT;

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
    /// No process listens at the path, or one of another user.
    Connect {
        socket: PathBuf,
        source: io::Error,
    },
    NoResponse {
        socket: PathBuf,
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
            CallError::Connect { socket, .. } if self.is_transient() => write!(
                f,
                "no gateway listens at admin.socket {}, and none started within {STARTUP_LIMIT:?} (is it running with \
                 this configuration? After a change of admin.socket or [store], it listens at the old path until it is \
                 restarted)",
                socket.display()
            ),
            CallError::Connect { socket, .. } => {
                write!(f, "cannot call the gateway at admin.socket {}; run the command as ", socket.display())?;
                match self.user_of_gateway() {
                    Some(user) => write!(f, "its user ({}), or as root", user.command()),
                    None => f.write_str("its user, or as root"),
                }
            }
            CallError::NoResponse { socket, .. } => {
                write!(f, "no response from the gateway at admin.socket {}", socket.display())
            }
            CallError::NotJson(status) => {
                write!(f, "the response ({status}) is not JSON; is admin.socket that of a gateway?")
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
            CallError::Runtime(error) | CallError::Connect { source: error, .. } => Some(error),
            CallError::Request(error) => Some(error),
            CallError::NoResponse { source, .. } => Some(source),
            CallError::NotJson(_) | CallError::Rejected { .. } => None,
        }
    }
}

impl CallError {
    /// The error that a response other than 2xx describes.
    pub(super) fn rejected(status: StatusCode, body: &Value) -> Self {
        let member = |name| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        CallError::Rejected { status, description: member("error_description"), code: member("error") }
    }

    /// Who has the folder of the socket, if the kernel denies its use. Any user can have created a socket in a folder
    /// such as /tmp, so that its own owner says less.
    fn user_of_gateway(&self) -> Option<User> {
        let CallError::Connect { socket, source } = self else { return None };
        source.raw_os_error()?;
        let folder = socket.parent()?;
        barrier(folder).map(|barrier| barrier.owner).filter(|owner| *owner != User(ROOT))
    }

    /// Returns true if the gateway may be starting: it does not listen yet.
    fn is_transient(&self) -> bool {
        let kinds = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
        matches!(self, CallError::Connect { source, .. } if kinds.contains(&source.kind()))
    }
}

/// Sends a request, and returns the JSON of a 2xx response.
pub(super) fn call(socket: &Path, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
    let (status, body) = send(socket, method, path, body)?;
    if status.is_success() { Ok(body) } else { Err(CallError::rejected(status, &body)) }
}

/// As [`call`], with any status.
pub(super) fn send(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Value), CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CallError::Runtime)?;
    let response = runtime.block_on(async {
        let stream = connect_with_retries(socket).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .map_err(CallError::Request)?;
        let response = client::send_on(stream, request, &LIMITS).await;
        response.map_err(|source| CallError::NoResponse { socket: socket.to_owned(), source })
    })?;
    let status = response.status();
    let body = serde_json::from_slice(response.body()).map_err(|_| CallError::NotJson(status))?;
    Ok((status, body))
}

/// Waits for a gateway that is starting.
async fn connect_with_retries(socket: &Path) -> Result<UnixStream, CallError> {
    let start = Instant::now();
    loop {
        let connected = local_socket::connect(socket).await;
        match connected.map_err(|source| CallError::Connect { socket: socket.to_owned(), source }) {
            Err(error) if error.is_transient() && start.elapsed() < STARTUP_LIMIT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            done => return done,
        }
    }
}
