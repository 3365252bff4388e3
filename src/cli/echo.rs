//! The backend of the demo: it responds with the request that it received.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

/// Maximum bytes of a request body. A larger one is shown as empty.
const BODY_LIMIT: usize = 64 * 1024;

/// Starts the backend on a free port of 127.0.0.1. Its thread ends with the process.
pub(super) fn start() -> std::io::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    let address = listener.local_addr()?;
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo)));
        }
    };
    std::thread::Builder::new().name("echo".into()).spawn(move || runtime.block_on(serve))?;
    Ok(address)
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_LIMIT).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let headers: Map<String, Value> = head
        .headers
        .iter()
        // The token is the client's secret, also in a demo.
        .filter(|(name, _)| *name != header::AUTHORIZATION)
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    let echo = json!({
        "request": format!("{} {}", head.method, head.uri),
        "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    let mut response = Response::new(Full::from(format!("{echo:#}\n")));
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}
