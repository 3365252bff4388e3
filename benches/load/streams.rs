//! WebSockets that are open and silent beside the requests of a scenario: what they cost others.
//!
//! Over HTTP/2 (RFC 8441), as browsers have them: so they take one open file each at the origin and one in the gateway, and
//! ten thousand fit where twenty thousand files may be open.

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

/// What keeps them open, until it is dropped. Nobody has anything to say on them, so the runtime rests.
pub struct Open {
    _runtime: Runtime,
    _connections: Vec<Sender>,
    _streams: Vec<Upgraded>,
}

/// Opens so many, in turn for each of these tokens, whose streams have a connection together.
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
    // An answer comes after the gateway's SETTINGS, without which no client may ask for a WebSocket.
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
    let answer = sender.send_request(request).await?;
    if answer.status() != 200 {
        return Err(format!("no WebSocket was opened: {}; see also `ulimit -n`", answer.status()).into());
    }
    Ok(hyper::upgrade::on(answer).await?)
}
