//! WebSockets: the upgrade, and the bytes after it.
//!
//! A tunnel opens only after the upstream has said 101 to `websocket` (Pingora CVE-2026-2833 opened one before, for any
//! `Upgrade`). Other protocols are not carried: their `Upgrade` is dropped, and the request goes on as an ordinary one.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::reject::{Reason, Reject};

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("Upgrade");

/// Both ends, once each has switched.
pub struct Tunnel {
    client: OnUpgrade,
    upstream: OnUpgrade,
}

/// Takes the client's end of the tunnel, if this request asks for one.
pub fn asked_for<B>(request: &mut Request<B>) -> Option<OnUpgrade> {
    is_asked_for(request).then(|| hyper::upgrade::on(request))
}

/// Does this request ask for a WebSocket (RFC 6455 section 4.1)?
pub fn is_asked_for<B>(request: &Request<B>) -> bool {
    let names_websocket = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket");
    *request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.headers().get(header::UPGRADE).is_some_and(names_websocket)
        && nominates_upgrade(request.headers())
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
    Ok(Some(Tunnel { client, upstream: hyper::upgrade::on(response) }))
}

impl Tunnel {
    /// Carries bytes both ways until both sides have closed. Answers how many went to the client.
    pub async fn carry(self) -> u64 {
        let (Ok(client), Ok(upstream)) = tokio::join!(self.client, self.upstream) else { return 0 };
        let (mut client, mut upstream): (TokioIo<Upgraded>, _) = (TokioIo::new(client), TokioIo::new(upstream));
        // An end that resets is an end.
        let carried = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        carried.map_or(0, |(_, to_client)| to_client)
    }
}
