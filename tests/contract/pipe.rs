//! A pipe in memory: the end of a library, which notes each call, and the end of its peer.

use std::fmt::Debug;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf, duplex};

/// Bytes that are on their way in each direction.
const ROOM: usize = 64 * 1024;

/// One call of a library on its stream that did not have to wait, or a read that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// How many bytes there were.
    Read(usize),
    ReadNothing,
    /// How many bytes were accepted.
    Write(usize),
    Flush,
    Shutdown,
}

/// The calls since the beginning, or since the last [`Calls::take`].
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock())
    }

    fn note(&self, call: Call) {
        self.0.lock().push(call);
    }
}

/// The end of a library.
#[derive(Debug)]
pub struct Watched {
    stream: DuplexStream,
    calls: Calls,
}

/// Makes a pipe.
pub fn pipe() -> (Watched, Calls, DuplexStream) {
    pipe_of(ROOM)
}

/// Makes a pipe that holds at most this many bytes in each direction.
pub fn pipe_of(room: usize) -> (Watched, Calls, DuplexStream) {
    let (stream, peer) = duplex(room);
    let calls = Calls::default();
    (Watched { stream, calls: calls.clone() }, calls, peer)
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.calls.note(match polled {
            Poll::Pending => Call::ReadNothing,
            Poll::Ready(_) => Call::Read(buffer.filled().len() - before),
        });
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(written)) = polled {
            self.calls.note(Call::Write(written));
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.calls.note(Call::Flush);
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.calls.note(Call::Shutdown);
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Reads up to and including `end`.
pub async fn read_until(peer: &mut DuplexStream, end: &str) -> String {
    let mut received = Vec::new();
    while !received.ends_with(end.as_bytes()) {
        received.push(soon(peer.read_u8()).await.expect("the library sends more"));
    }
    String::from_utf8(received).expect("text")
}

/// Reads all that is sent before the end.
pub async fn read_all(peer: &mut DuplexStream) -> String {
    let mut received = String::new();
    soon(peer.read_to_string(&mut received)).await.expect("text");
    received
}

/// Waits for what a library does. Panics if it does not.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = future => done,
        () = settle() => panic!("the library waits for something else"),
    }
}

/// Drives a connection while its peer does something. Panics if the connection ends before that.
pub async fn drive<C, T>(connection: &mut C, peer: impl Future<Output = T>) -> T
where
    C: Future<Output: Debug> + Unpin,
{
    soon(async {
        tokio::select! {
            biased;
            ended = connection => panic!("the connection has ended: {ended:?}"),
            done = peer => done,
        }
    })
    .await
}

/// Drives a connection until each task has to wait. Panics if the connection ends before that.
pub async fn drive_until_it_waits<C: Future<Output: Debug> + Unpin>(connection: &mut C) {
    tokio::select! {
        biased;
        ended = connection => panic!("the connection has ended: {ended:?}"),
        () = settle() => {}
    }
}

/// Polls a connection once.
pub async fn poll_once<C: Future + Unpin>(connection: &mut C) -> Poll<C::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *connection).poll(context))).await
}

/// Returns when each task has to wait. There are no sockets and timers here, so a task that can go on does so at its
/// next turn.
pub async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}
