//! hyper's side of an HTTP/1 client.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, mpsc};

use crate::pipe::{Call, Calls, Watched, drive, pipe, poll_once, read_all, read_until, soon};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

type Served<V> = Pin<Box<http1::UpgradeableConnection<TokioIo<Watched>, V>>>;

/// Serves one end of a pipe. As the gateway, it gives hyper no timer.
fn serve<V, B>(service: V) -> (Served<V>, Calls, DuplexStream)
where
    V: HttpService<Incoming, ResBody = B, Error: Into<Box<dyn Error + Send + Sync>>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let (stream, calls, client) = pipe();
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service);
    (Box::pin(connection.with_upgrades()), calls, client)
}

async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".to_owned()))
}

/// A service that waits for the test.
#[derive(Clone, Default)]
struct Gate {
    arrived: Arc<Notify>,
    opened: Arc<Notify>,
}

impl Gate {
    async fn pass(self, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        self.arrived.notify_one();
        self.opened.notified().await;
        hello(request).await
    }
}

/// Lets `src/server/http1.rs` take the stream of an idle connection back.
#[tokio::test]
async fn an_idle_connection_ends_without_a_byte_on_graceful_shutdown() {
    let (mut connection, calls, mut client) = serve(service_fn(hello));
    client.write_all(GET).await.expect("room");
    drive(&mut connection, read_until(&mut client, "hello")).await;
    calls.take();
    connection.as_mut().graceful_shutdown();
    assert!(poll_once(&mut connection).await.is_ready());
    let calls = calls.take();
    assert!(calls.iter().all(|call| matches!(call, Call::Flush | Call::Shutdown)), "{calls:?}");
    assert_eq!(calls.last(), Some(&Call::Shutdown));
    let parts = Pin::into_inner(connection).into_parts().expect("no upgrade");
    assert!(parts.read_buf.is_empty());
}

/// Lets `src/server/http1.rs` wait at the socket below TLS: no byte of the client waits above it.
#[tokio::test]
async fn an_idle_connection_has_read_until_there_was_nothing() {
    let (mut connection, calls, mut client) = serve(service_fn(hello));
    for request in [GET, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"] {
        client.write_all(request).await.expect("room");
        assert!(poll_once(&mut connection).await.is_pending());
        let mut reads = calls.take().into_iter().filter(|call| matches!(call, Call::Read(_) | Call::ReadNothing));
        assert_eq!(reads.next_back(), Some(Call::ReadNothing));
        read_until(&mut client, "hello").await;
    }
}

/// Lets `src/server/http1.rs` tell a client during the drain that the connection closes.
#[tokio::test]
async fn a_request_in_flight_gets_a_response_that_says_close_on_graceful_shutdown() {
    let gate = Gate::default();
    let service = gate.clone();
    let (mut connection, calls, mut client) = serve(service_fn(move |request| service.clone().pass(request)));
    client.write_all(GET).await.expect("room");
    drive(&mut connection, gate.arrived.notified()).await;
    connection.as_mut().graceful_shutdown();
    assert!(poll_once(&mut connection).await.is_pending());
    gate.opened.notify_one();
    soon(connection).await.expect("a clean end");
    let response = read_all(&mut client).await;
    assert!(response.contains("\r\nconnection: close\r\n") && response.ends_with("hello"), "{response}");
    assert_eq!(calls.take().last(), Some(&Call::Shutdown));
}

/// Makes `src/server/client_io.rs` ask for a wake-up if it has to wait for the response to a request for an upgrade.
#[tokio::test]
async fn a_stream_that_had_nothing_is_not_read_again_after_a_response() {
    let gate = Gate::default();
    let service = gate.clone();
    let (mut connection, calls, mut client) = serve(service_fn(move |request| service.clone().pass(request)));
    client.write_all(GET).await.expect("room");
    drive(&mut connection, gate.arrived.notified()).await;
    calls.take();
    gate.opened.notify_one();
    assert!(poll_once(&mut connection).await.is_pending());
    assert!(matches!(calls.take()[..], [Call::ReadNothing, Call::Write(_), Call::Flush]));
}

/// Lets `src/server/handshake_io.rs` hold session tickets back until a response comes.
#[tokio::test]
async fn each_read_is_followed_by_a_flush_without_a_response() {
    let (mut connection, calls, mut client) = serve(service_fn(hello));
    client.write_all(&GET[..8]).await.expect("room");
    assert!(poll_once(&mut connection).await.is_pending());
    assert_eq!(calls.take(), [Call::Read(8), Call::ReadNothing, Call::Flush]);
}

/// Makes `src/server/connection.rs` add `Connection: close` itself.
#[tokio::test]
async fn a_response_before_the_end_of_its_request_ends_the_connection_without_saying_so() {
    let (connection, calls, mut client) = serve(service_fn(hello));
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").await.expect("room");
    soon(connection).await.expect("a clean end");
    let response = read_all(&mut client).await;
    assert!(response.ends_with("hello") && !response.contains("connection"), "{response}");
    assert_eq!(calls.take().last(), Some(&Call::Shutdown));
}

/// Lets `src/server/connection.rs` drop the request of a client that is gone, with its request to a backend.
#[tokio::test]
async fn a_connection_ends_under_its_request_when_the_client_is_gone() {
    let gate = Gate::default();
    let service = gate.clone();
    let (mut connection, _, mut client) = serve(service_fn(move |request| service.clone().pass(request)));
    client.write_all(GET).await.expect("room");
    drive(&mut connection, gate.arrived.notified()).await;
    drop(client);
    assert!(soon(connection).await.expect_err("no response").is_incomplete_message());
}

/// A body that fails at its first poll, or at its second.
struct Failing {
    waits: bool,
}

impl Body for Failing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if std::mem::take(&mut self.waits) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())))
    }
}

/// Makes `src/protocols/http/body/streamed.rs` delay an error of the first frame.
#[tokio::test]
async fn a_head_leaves_while_the_first_frame_is_pending_and_not_if_it_fails() {
    for waits in [false, true] {
        let (connection, _, mut client) =
            serve(service_fn(async |_| Ok::<_, Infallible>(Response::new(Failing { waits }))));
        client.write_all(GET).await.expect("room");
        assert!(soon(connection).await.expect_err("the body has failed").is_user());
        assert_eq!(read_all(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"), waits);
    }
}

/// Lets `src/server/client_io.rs` go on with a tunnel where the requests have ended.
#[tokio::test]
async fn a_connection_ends_with_101_and_leaves_its_stream_open() {
    let (sender, mut upgrades) = mpsc::unbounded_channel();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let is_kept = sender.send(hyper::upgrade::on(&mut request)).is_ok();
        async move {
            assert!(is_kept, "the test waits for it");
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            Ok::<_, Infallible>(response)
        }
    });
    let (mut connection, calls, mut client) = serve(service);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly";
    client.write_all(request).await.expect("room");
    soon(connection.as_mut()).await.expect("the end of HTTP");
    assert!(!calls.take().contains(&Call::Shutdown) && Pin::into_inner(connection).into_parts().is_none());
    let upgrade = soon(upgrades.recv()).await.expect("a request");
    let mut tunnel = TokioIo::new(soon(upgrade).await.expect("a tunnel"));
    let mut early = [0; 5];
    soon(tunnel.read_exact(&mut early)).await.expect("what hyper has read");
    assert_eq!(&early, b"early");
    tunnel.write_all(b"late").await.expect("the client is there");
    assert!(read_until(&mut client, "late").await.starts_with("HTTP/1.1 101 "));
}
