//! Open WebSockets without messages, beside the requests of a scenario. They show what open streams cost other
//! requests.
//!
//! The client opens them over HTTP/2 (RFC 8441), as browsers do. Each takes one open file at the origin and one in the
//! gateway, so 10,000 of them need a limit of 20,000 open files.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Empty;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::Outcome;

type Sender = SendRequest<Empty<Bytes>>;

/// Keeps the streams open until it is dropped. No stream carries data, so the runtime does not need to run.
pub struct Open {
    _runtime: Runtime,
    _connections: Vec<Sender>,
    _streams: Vec<Upgraded>,
}

/// Opens `count` WebSockets, distributed over the tokens. All streams of one token share a connection.
pub fn open(address: SocketAddr, tokens: &[String], count: usize) -> Outcome<Open> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (connections, streams) = runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in tokens {
            connections.push(connect(address).await?);
        }
        let mut streams = Vec::new();
        for (sender, token) in connections.iter().zip(tokens).cycle().take(count) {
            streams.push(open_one(sender.clone(), token).await?);
        }
        Outcome::Ok((connections, streams))
    })?;
    Ok(Open { _runtime: runtime, _connections: connections, _streams: streams })
}

async fn connect(address: SocketAddr) -> Outcome<Sender> {
    let tcp = TcpStream::connect(address).await?;
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(tcp)).await?;
    tokio::spawn(connection);
    // The first response follows the gateway's SETTINGS, which a client needs before it opens a WebSocket (RFC 8441).
    sender.send_request(Request::get("http://localhost/public/").body(Empty::new())?).await?;
    Ok(sender)
}

async fn open_one(mut sender: Sender, token: &str) -> Outcome<Upgraded> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://localhost/stream")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .body(Empty::new())?;
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    if response.status() != 200 {
        return Err(format!("cannot open a WebSocket: got {} (check `ulimit -n`)", response.status()).into());
    }
    Ok(hyper::upgrade::on(response).await?)
}
