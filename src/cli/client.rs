//! Calls to the admin listener of a running gateway.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::admin::{SecretSource, Settings};
use crate::protocols::tls;
use crate::types::reject::with_causes;

/// Longer than a gateway takes for any answer; without an end to it a command would wait for a stuck disk for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// A gateway that was begun a moment ago is there within this: so long is one waited for.
const START: Duration = Duration::from_secs(5);
/// How often it is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// One request to the admin API; the JSON of a 2xx answer, or what went wrong.
pub(super) fn call(admin: &Settings, method: Method, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let (status, answer) = ask(admin, method, path, body)?;
    if status.is_success() { Ok(answer) } else { Err(refusal(status, &answer)) }
}

/// What an answer that is no 2xx says.
pub(super) fn refusal(status: StatusCode, answer: &Value) -> String {
    let member = |name| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("the gateway answered {status}: {} ({})", member("error_description"), member("error"))
}

/// As [`call`], with whatever was answered.
pub(super) fn ask(
    admin: &Settings,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Value), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let (stream, token) = reach(admin).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, admin.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .map_err(|error| error.to_string())?;
        let answered = tokio::time::timeout(PATIENCE, send(admin, stream, request)).await;
        let late = |_| format!("the gateway at {} did not answer within {}s", admin.address, PATIENCE.as_secs());
        answered.map_err(late)?
    })
}

/// Why there is nothing to ask, or to show.
struct ConnectError {
    fault: String,
    /// As with a gateway that is just starting: it has not made its token, or does not listen.
    may_pass: bool,
}

/// A connection, and the token to show on it.
async fn reach(admin: &Settings) -> Result<(TcpStream, String), String> {
    let began = Instant::now();
    loop {
        let reached = async { Ok((connect(admin.address).await?, admin_token(&admin.token)?)) };
        match reached.await {
            Ok(reached) => return Ok(reached),
            Err(ConnectError { may_pass: true, .. }) if began.elapsed() < START => tokio::time::sleep(LOOK).await,
            Err(ConnectError { fault, .. }) => return Err(fault),
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, ConnectError> {
    TcpStream::connect(address).await.map_err(|error| {
        let may_pass = error.kind() == ErrorKind::ConnectionRefused;
        let waited = if may_pass { format!(", nor came one within {}s", START.as_secs()) } else { String::new() };
        ConnectError { fault: unreachable(address, &error, &waited), may_pass }
    })
}

fn unreachable(address: SocketAddr, error: &io::Error, waited: &str) -> String {
    format!("no gateway answers at admin.address {address}{waited}: {error}; is it running with this configuration?")
}

async fn send(
    admin: &Settings,
    stream: TcpStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Value), String> {
    match certificate(&admin.tls) {
        None => exchange(stream, request).await,
        Some(file) => {
            let connector =
                TlsConnector::from(tls::client_config_pinned_to(&file).map_err(|error| with_causes(&error))?);
            let stream = connector.connect(ServerName::from(admin.address.ip()), stream).await;
            exchange(stream.map_err(|error| unreachable(admin.address, &error, ""))?, request).await
        }
    }
}

/// The certificate that the listener shows: whoever can read the configuration knows it. By an address, which says no name,
/// it is the first.
fn certificate(settings: &tls::Settings) -> Option<std::path::PathBuf> {
    match settings {
        tls::Settings::Off => None,
        tls::Settings::SelfSigned { folder } => Some(tls::CertificateFiles::self_signed(folder).certificate),
        tls::Settings::Certificates(files) => files.first().map(|files| files.certificate.clone()),
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(StatusCode, Value), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: hyper::Error| format!("the admin listener broke off: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let content = response.into_body().collect().await.map_err(broken)?.to_bytes();
    let answer = serde_json::from_slice(&content);
    Ok((status, answer.map_err(|_| format!("{status}: the answer is not JSON; is this the admin listener?"))?))
}

fn admin_token(source: &SecretSource) -> Result<String, ConnectError> {
    let token = match source {
        SecretSource::File(path) => fs::read_to_string(path).map_err(|error| ConnectError {
            fault: format!(
                "the admin token {} cannot be read: {error}; admin.token_file names it, and the gateway makes it when it starts",
                path.display()
            ),
            may_pass: error.kind() == ErrorKind::NotFound,
        })?,
        SecretSource::Environment(name) => std::env::var(name).map_err(|_| ConnectError {
            fault: format!("the environment variable {name} is not set"),
            may_pass: false,
        })?,
    };
    Ok(token.trim().to_owned())
}
