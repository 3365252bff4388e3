//! The closed loop over HTTP/2: several connections with several concurrent requests on each.
//!
//! A request costs this client about as much CPU time as it costs the gateway. That does not change the result, which
//! is the CPU time of the process under test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::Outcome;
use crate::client::Target;
use crate::drive::{Load, Measured, cpu_time, histogram, nanos};

/// Concurrent requests on each connection.
const CONCURRENT: usize = 10;

/// Runs the load for `length` and measures the CPU time of the process `pid`. A tenth of the connections with ten
/// concurrent requests each has as many requests in flight as the same load over HTTP/1.1.
pub fn drive(load: &Load, length: Duration, pid: u32) -> Outcome<Measured> {
    let request = Arc::new(to_http2(load.requests.first().ok_or("no request")?)?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..load.connections.div_ceil(CONCURRENT) {
            connections.push(connect(&load.target).await?);
        }
        let (start, cpu_before) = (Instant::now(), cpu_time(pid)?);
        let mut tasks = JoinSet::new();
        for sender in connections.iter().flat_map(|sender| std::iter::repeat_n(sender, CONCURRENT)) {
            tasks.spawn(send_until(sender.clone(), request.clone(), load.expected_status, start + length));
        }
        let mut latency = histogram()?;
        for latencies in tasks.join_all().await {
            latencies?.into_iter().for_each(|taken| latency.saturating_record(nanos(taken)));
        }
        let (elapsed, cpu) = (start.elapsed(), cpu_time(pid)?.saturating_sub(cpu_before));
        Ok(Measured { responses: latency.len(), resumed: 0, elapsed, cpu, latency, lateness: histogram()? })
    })
}

/// One connection that sends the first request of a load again and again.
pub struct Session {
    runtime: Runtime,
    sender: SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
}

impl Session {
    pub fn open(load: &Load) -> Outcome<Session> {
        let request = to_http2(load.requests.first().ok_or("no request")?)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(connect(&load.target))?;
        Ok(Session { runtime, sender, request })
    }

    /// Returns the status of the response.
    pub fn exchange(&mut self) -> Outcome<u16> {
        self.runtime.block_on(async {
            self.sender.ready().await?;
            let response = self.sender.send_request(self.request.clone()).await?;
            let status = response.status().as_u16();
            response.into_body().collect().await?;
            Ok(status)
        })
    }
}

async fn connect(target: &Target) -> Outcome<SendRequest<Empty<Bytes>>> {
    let tcp = TcpStream::connect(target.address).await?;
    tcp.set_nodelay(true)?;
    let config = target.tls.clone().ok_or("HTTP/2 needs TLS in this bench")?;
    let stream = TlsConnector::from(config).connect(ServerName::try_from("localhost")?, tcp).await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err("the server did not negotiate HTTP/2".into());
    }
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends one request after another until `end`. Returns how long each took.
async fn send_until(
    mut sender: SendRequest<Empty<Bytes>>,
    request: Arc<Request<Empty<Bytes>>>,
    expected: &'static [u16],
    end: Instant,
) -> Outcome<Vec<Duration>> {
    let mut taken = Vec::new();
    while Instant::now() < end {
        let begun = Instant::now();
        sender.ready().await?;
        let response = sender.send_request((*request).clone()).await?;
        let status = response.status().as_u16();
        response.into_body().collect().await?;
        if !expected.contains(&status) {
            return Err(format!("expected {expected:?}, got {status} over HTTP/2").into());
        }
        taken.push(begun.elapsed());
    }
    Ok(taken)
}

/// Converts an HTTP/1.1 request to HTTP/2.
fn to_http2(request: &[u8]) -> Outcome<Request<Empty<Bytes>>> {
    let text = std::str::from_utf8(request)?;
    let path = text.split(' ').nth(1).ok_or("no path")?;
    let mut builder = Request::get(format!("https://localhost{path}"));
    let fields = text.lines().skip(1).filter_map(|line| line.split_once(": "));
    for (name, value) in fields.filter(|(name, _)| !name.eq_ignore_ascii_case(header::HOST.as_str())) {
        builder = builder.header(name, value);
    }
    Ok(builder.body(Empty::new())?)
}
