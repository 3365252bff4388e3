//! hyper's side of an HTTP/2 client.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::server::conn::http2;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;

use crate::frames::{
    self, ACK, CANCEL, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, NO_ERROR, OK, PING, PREFACE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, begin, frame, get, next, post,
};
use crate::pipe::{Call, Calls, Watched, drive, drive_until_it_waits, pipe, poll_once, settle, soon};

pub type Served<V, E> = Pin<Box<http2::Connection<TokioIo<Watched>, V, E>>>;

/// Serves one end of a pipe.
pub fn serve<V, B, E>(builder: &http2::Builder<E>, service: V) -> (Served<V, E>, Calls, DuplexStream)
where
    V: HttpService<Incoming, ResBody = B, Error: Into<Box<dyn Error + Send + Sync>>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    E: Http2ServerConnExec<V::Future, B>,
{
    let (stream, calls, client) = pipe();
    (Box::pin(builder.serve_connection(TokioIo::new(stream), service)), calls, client)
}

pub fn builder() -> http2::Builder<TokioExecutor> {
    http2::Builder::new(TokioExecutor::new())
}

pub async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".to_owned()))
}

fn respond<B>(body: B) -> Ready<Result<Response<B>, Infallible>> {
    ready(Ok(Response::new(body)))
}

tokio::task_local! {
    static REQUEST: ();
}

/// Returns true inside the task of a request.
fn is_in_task() -> bool {
    REQUEST.try_with(|()| ()).is_ok()
}

/// An executor that keeps each task, and whether another task has spawned it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<(AbortHandle, bool)>>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let handle = tokio::spawn(REQUEST.scope((), task)).abort_handle();
        self.0.lock().push((handle, is_in_task()));
    }
}

/// A body of frames of 1,000 bytes that counts them.
struct Counted {
    frames: Arc<AtomicUsize>,
    most: usize,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.frames.load(Ordering::Relaxed) == self.most {
            return Poll::Pending;
        }
        self.frames.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1000])))))
    }
}

/// Lets `src/server/corked_stream.rs` send SETTINGS at once, and collect all later frames.
#[tokio::test]
async fn settings_are_written_and_flushed_before_the_first_read() {
    let (mut connection, calls, _client) = serve(&builder(), service_fn(hello));
    assert!(poll_once(&mut connection).await.is_pending());
    assert!(matches!(calls.take()[..], [Call::Write(_), Call::Flush, Call::ReadNothing, ..]));
}

/// Makes `src/server/corked_stream.rs` collect the responses that are ready at the same time.
#[tokio::test]
async fn each_data_frame_of_256_bytes_is_written_and_flushed_on_its_own() {
    for (size, expected) in [(255, 1), (256, 3)] {
        let service = service_fn(move |_| respond("x".repeat(size)));
        let (mut connection, calls, mut client) = serve(&builder(), service);
        frames::send(&mut client, &[begin(), get(1), get(3), get(5)]).await;
        assert!(poll_once(&mut connection).await.is_pending());
        settle().await;
        calls.take();
        assert!(poll_once(&mut connection).await.is_pending());
        let calls = calls.take();
        let written = calls.windows(2).filter(|pair| matches!(pair, [Call::Write(_), Call::Flush]));
        assert_eq!(written.count(), expected, "{size}: {calls:?}");
    }
}

/// Makes `src/server/http2.rs` limit the time for a client that does not reply to GOAWAY.
#[tokio::test]
async fn a_graceful_shutdown_waits_for_a_reply_and_serves_what_comes_before_it() {
    const ANY_STREAM: u32 = (1 << 31) - 1;
    let (mut connection, _, mut client) = serve(&builder(), service_fn(hello));
    frames::send(&mut client, &[begin()]).await;
    drive(&mut connection, next(&mut client, &[SETTINGS])).await;
    connection.as_mut().graceful_shutdown();
    let goaway = drive(&mut connection, next(&mut client, &[GOAWAY])).await;
    assert_eq!((goaway.number_at(0), goaway.number_at(4)), (ANY_STREAM, NO_ERROR));
    let ping = drive(&mut connection, next(&mut client, &[PING])).await;
    frames::send(&mut client, &[get(1)]).await;
    let response = drive(&mut connection, next(&mut client, &[HEADERS])).await;
    assert_eq!(response.payload[0], OK);
    drive_until_it_waits(&mut connection).await;
    frames::send(&mut client, &[frame(PING, ACK, 0, &ping.payload)]).await;
    soon(connection).await.expect("a clean end");
    assert_eq!(next(&mut client, &[GOAWAY]).await.number_at(0), 1);
}

/// Lets `src/server/http2.rs` notice a request in a poll of its connection, and `src/server/executor.rs` tell the two
/// tasks apart.
#[tokio::test]
async fn a_request_runs_in_a_task_that_spawns_a_second_one_for_a_websocket() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let tasks = Tasks::default();
    let service = service_fn(move |_| {
        noted.lock().push(("called", is_in_task()));
        let noted = noted.clone();
        async move {
            noted.lock().push(("polled", is_in_task()));
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut builder = http2::Builder::new(tasks.clone());
    let (mut connection, _, mut client) = serve(builder.enable_connect_protocol(), service);
    let connect = frame(HEADERS, END_HEADERS, 1, &frames::request("CONNECT", &[(":protocol", "websocket")]));
    frames::send(&mut client, &[begin(), connect]).await;
    drive(&mut connection, next(&mut client, &[HEADERS])).await;
    assert_eq!(*seen.lock(), [("called", false), ("polled", true)]);
    assert_eq!(tasks.0.lock().iter().map(|(_, is_within)| *is_within).collect::<Vec<_>>(), [false, true]);
}

/// Lets `src/server/executor.rs` end a response that its client makes no room for.
#[tokio::test]
async fn a_task_that_is_dropped_resets_its_stream_with_cancel() {
    let tasks = Tasks::default();
    let service = service_fn(|_| respond(Counted { frames: Arc::default(), most: 1 }));
    let (mut connection, _, mut client) = serve(&http2::Builder::new(tasks.clone()), service);
    frames::send(&mut client, &[begin(), get(1)]).await;
    drive(&mut connection, next(&mut client, &[DATA])).await;
    tasks.0.lock().iter().for_each(|(task, _)| task.abort());
    let reset = drive(&mut connection, next(&mut client, &[RST_STREAM])).await;
    assert_eq!((reset.stream, reset.number_at(0)), (1, CANCEL));
}

/// Lets `src/server/executor.rs` measure by the frames of a body how fast its client makes room.
#[tokio::test]
async fn a_body_is_taken_one_frame_ahead_of_the_room_that_the_client_makes() {
    let taken = Arc::new(AtomicUsize::new(0));
    let frames = taken.clone();
    let service = service_fn(move |_| respond(Counted { frames: frames.clone(), most: usize::MAX }));
    let (mut connection, _, mut client) = serve(&builder(), service);
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    frames::send(&mut client, &[PREFACE.to_vec(), no_window, get(1)]).await;
    drive_until_it_waits(&mut connection).await;
    assert_eq!(taken.load(Ordering::Relaxed), 1);
    for (room, expected) in [(1_u32, 2), (999, 2), (1, 3)] {
        frames::send(&mut client, &[frame(WINDOW_UPDATE, 0, 1, &room.to_be_bytes())]).await;
        drive_until_it_waits(&mut connection).await;
        assert_eq!(taken.load(Ordering::Relaxed), expected, "{room}");
    }
}

/// Makes `src/server/linger.rs` read the rest of a request that was rejected.
#[tokio::test]
async fn a_body_that_is_not_read_is_reset_right_behind_the_response() {
    let (mut connection, _, mut client) = serve(&builder(), service_fn(hello));
    frames::send(&mut client, &[begin(), post(1)]).await;
    let end = drive(&mut connection, next(&mut client, &[DATA, RST_STREAM])).await;
    assert_eq!((end.kind, end.flags), (DATA, END_STREAM));
    let reset = drive(&mut connection, next(&mut client, &[DATA, RST_STREAM])).await;
    assert_eq!((reset.kind, reset.number_at(0)), (RST_STREAM, NO_ERROR));
}
