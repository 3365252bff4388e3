//! WebSockets: the upgrade, and the bytes after it.
//!
//! A tunnel opens only after the upstream has said 101 to `websocket` (Pingora CVE-2026-2833 opened one before, for any
//! `Upgrade`). Other protocols are not carried: their `Upgrade` is dropped, and the request goes on as an ordinary one.

use std::pin::pin;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::reject::{Reason, Reject};

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("Upgrade");

type End = TokioIo<Upgraded>;

/// After one side has closed.
const GOODBYE: Duration = Duration::from_secs(5);

/// Both ends, once each has switched.
pub struct Tunnel {
    client: OnUpgrade,
    upstream: OnUpgrade,
}

/// Takes the client's end of the tunnel, if this request asks for one.
pub fn asked_for<B: Body>(request: &mut Request<B>) -> Option<OnUpgrade> {
    // What follows the head is the tunnel's, and nothing else's.
    let asks = is_asked_for(request) && request.body().is_end_stream();
    asks.then(|| hyper::upgrade::on(request))
}

/// Does this request ask for a WebSocket (RFC 6455 section 4.1)?
pub fn is_asked_for<B>(request: &Request<B>) -> bool {
    *request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && names_websocket(request.headers())
        && nominates_upgrade(request.headers())
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::UPGRADE).iter();
    let names = values.next().is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket"));
    names && values.next().is_none()
}

fn nominates_upgrade(headers: &HeaderMap) -> bool {
    let lists = |value: &HeaderValue| {
        value.as_bytes().split(|byte| *byte == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    };
    headers.get_all(header::CONNECTION).iter().any(lists)
}

/// Puts the upgrade back that header hygiene took out.
pub fn ask(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
}

/// The tunnel, if the upstream agreed. An upstream that switches without being asked is broken.
pub fn agreed<B>(client: Option<OnUpgrade>, response: &mut Response<B>) -> Result<Option<Tunnel>, Reject> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(None);
    }
    let Some(client) = client else {
        return Err(Reject::new(Reason::UpstreamBroken, "it switched protocols without being asked"));
    };
    if !names_websocket(response.headers()) {
        return Err(Reject::new(Reason::UpstreamBroken, "it switched to another protocol than websocket"));
    }
    Ok(Some(Tunnel { client, upstream: hyper::upgrade::on(response) }))
}

impl Tunnel {
    /// Carries bytes both ways until either side closes and the other had time to say goodbye. Counts what went to the
    /// client. `false` if the tunnel did not open.
    pub async fn carry(self, to_client: &mut u64) -> bool {
        let (Ok(client), Ok(upstream)) = tokio::join!(self.client, self.upstream) else { return false };
        let (from_client, client) = tokio::io::split(TokioIo::new(client));
        let (from_upstream, upstream) = tokio::io::split(TokioIo::new(upstream));
        let mut to_upstream = 0;
        let mut up = pin!(carry_one_way(from_client, upstream, &mut to_upstream));
        let mut down = pin!(carry_one_way(from_upstream, client, to_client));
        // Who has not gone by then is cut off, which is as it should be.
        let _ = tokio::select! {
            () = up.as_mut() => tokio::time::timeout(GOODBYE, down).await,
            () = down.as_mut() => tokio::time::timeout(GOODBYE, up).await,
        };
        true
    }
}

/// Until `from` closes, or `to` takes no more. A reset is an end, too.
async fn carry_one_way(mut from: ReadHalf<End>, mut to: WriteHalf<End>, carried: &mut u64) {
    let mut bytes = Vec::with_capacity(8 * 1024);
    while let Ok(1..) = from.read_buf(&mut bytes).await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            break;
        }
        *carried += bytes.len() as u64;
        bytes.clear();
    }
    let _ = to.shutdown().await;
}
