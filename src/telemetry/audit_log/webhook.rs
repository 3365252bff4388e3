//! The audit webhook: a POST with one line of JSON an event (`application/x-ndjson`); any 2xx means that they are kept.
//!
//! A connection for each delivery. No redirect is followed: events are for the one that the operator named.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::Webhook;
use crate::protocols::http::body::Body;
use crate::protocols::tls;
use crate::tokens::audit_event::Recorded;
use crate::types::reject::with_causes;

/// From the first packet to the head of the answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn post(webhook: &Webhook, events: &[Recorded]) -> Result<(), String> {
    let url = &webhook.url;
    // Boxed: a handshake in it makes the future a large one.
    match tokio::time::timeout(TIME_LIMIT, Box::pin(connect_and_send(webhook, events))).await {
        Ok(sent) => sent.map_err(|fault| format!("{url}: {fault}")),
        Err(_) => Err(format!("{url}: no answer within {}s", TIME_LIMIT.as_secs())),
    }
}

async fn connect_and_send(webhook: &Webhook, events: &[Recorded]) -> Result<(), String> {
    let url = &webhook.url;
    let request = request(webhook, events)?;
    let fault = |error: std::io::Error| format!("no connection: {error}");
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(fault)?;
    if !url.tls {
        return send(stream, request).await;
    }
    // Read anew each time: a CA that was renewed is trusted without a restart.
    let config = tls::client_config(webhook.ca_file.as_deref(), &[b"http/1.1"]).map_err(|error| with_causes(&error))?;
    let name = ServerName::try_from(url.host.clone()).map_err(|_| "no name that TLS can check")?;
    send(TlsConnector::from(config).connect(name, stream).await.map_err(fault)?, request).await
}

fn request(webhook: &Webhook, events: &[Recorded]) -> Result<Request<Body>, String> {
    let page: String = events.iter().map(|event| event.line() + "\n").collect();
    let mut request = Request::post(&webhook.url.target)
        .header(header::HOST, &webhook.url.authority)
        .header(header::USER_AGENT, concat!("bearward/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, "application/x-ndjson");
    if let Some(path) = &webhook.authorization_file {
        request = request.header(header::AUTHORIZATION, authorization(path)?);
    }
    request.body(Body::full(page)).map_err(|error| error.to_string())
}

/// Read anew each time: a token that was renewed is used without a restart.
fn authorization(path: &Path) -> Result<HeaderValue, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut value = HeaderValue::from_str(text.trim())
        .map_err(|_| format!("{}: not the value of an Authorization header", path.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn send<S>(stream: S, request: Request<Body>) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let fault = |error: hyper::Error| with_causes(&error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(fault)?;
    let asking = async {
        let status = sender.send_request(request).await.map_err(fault)?.status();
        if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
    };
    // The connection runs here and not in a task of its own: it ends with the answer, or with the patience for it.
    let (mut asking, mut connection) = (pin!(asking), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut asking => answer,
        _ = &mut connection => asking.await,
    }
}
