//! Writes what an HTTP/2 connection sends during one poll together, as TCP_CORK would.
//!
//! h2 writes and flushes each DATA frame of 256 bytes or more on its own: ten responses that are ready at the same time
//! would be ten TLS records and ten system calls. [`CorkedStream`] collects them, and [`Cork::drive`] writes them after
//! the poll, so that no frame waits for a later poll.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::unwritten::Unwritten;
use crate::protocols::tls::RECORD_SIZE;

/// Maximum bytes that are collected. A larger DATA frame is written without a copy.
const MAX_COLLECTED: usize = RECORD_SIZE;

/// The stream as hyper sees it.
pub(super) struct CorkedStream<S>(Arc<Mutex<Corked<S>>>);

/// Decides when a [`CorkedStream`] writes.
pub(super) struct Cork<S>(Arc<Mutex<Corked<S>>>);

struct Corked<S> {
    stream: S,
    /// At most [`MAX_COLLECTED`] bytes.
    collected: Unwritten,
    /// Set by the first read. The frames before it, SETTINGS, leave at once: with the session tickets of TLS, and
    /// before the GOAWAY that ends a flood, which is written below this stream (RFC 9113 section 3.4).
    has_read: bool,
    /// Why writing failed. hyper learns of it with its next call.
    failed: Option<io::Error>,
}

/// Wraps the stream of an HTTP/2 connection for hyper.
pub(super) fn cork<S>(stream: S) -> (CorkedStream<S>, Cork<S>) {
    let corked = Corked { stream, collected: Unwritten::default(), has_read: false, failed: None };
    let corked = Arc::new(Mutex::new(corked));
    (CorkedStream(corked.clone()), Cork(corked))
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    /// Drives the connection that has the [`CorkedStream`], and writes after each poll what it has collected.
    pub(super) fn drive<C: Future + Unpin>(&self, connection: &mut C) -> impl Future<Output = C::Output> {
        poll_fn(|context| {
            let polled = Pin::new(&mut *connection).poll(context);
            self.uncork(context);
            polled
        })
    }

    /// Writes what was collected, as far as the client accepts it. If it accepts no more, the task is woken when it
    /// does.
    fn uncork(&self, context: &mut Context<'_>) {
        let mut corked = self.0.lock();
        if corked.collected.is_empty() {
            return;
        }
        if let Poll::Ready(Err(error)) = corked.poll_flush(context) {
            corked.failed = Some(error);
            context.waker().wake_by_ref();
        }
    }
}

impl<S> Corked<S> {
    fn earlier_failure(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// After an error, nothing more is written: the stream may have accepted bytes before it failed.
    fn discard_on_error<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(polled, Poll::Ready(Err(_))) {
            self.collected.discard();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.poll_write_collected(context);
        ready!(self.discard_on_error(polled))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_write_collected(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.collected.is_empty() {
            ready!(self.collected.poll_write_with(&mut self.stream, context, &[]))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.earlier_failure()?;
        let polled = self.poll_collect(context, slices);
        self.discard_on_error(polled)
    }

    fn poll_collect(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let len = slices.iter().map(|slice| slice.len()).sum::<usize>();
        while !self.has_read || self.collected.len() + len > MAX_COLLECTED {
            if self.collected.is_empty() {
                return Pin::new(&mut self.stream).poll_write_vectored(context, slices);
            }
            let written = ready!(self.collected.poll_write_with(&mut self.stream, context, slices))?;
            if written.of_slices > 0 {
                return Poll::Ready(Ok(written.of_slices));
            }
        }
        self.collected.append(slices, MAX_COLLECTED);
        Poll::Ready(Ok(len))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CorkedStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut corked = self.0.lock();
        corked.earlier_failure()?;
        corked.has_read = true;
        Pin::new(&mut corked.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CorkedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves what is collected to [`Cork::drive`]. Without it, TLS may still hold a large frame back.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut corked = self.0.lock();
        if corked.collected.is_empty() { corked.poll_flush(context) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut corked = self.0.lock();
        corked.earlier_failure()?;
        ready!(corked.poll_flush(context))?;
        Pin::new(&mut corked.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The client's side: what it has received, write by write.
    #[derive(Default)]
    struct Client {
        received: Vec<Vec<u8>>,
        /// Bytes that it still accepts.
        room: usize,
        is_gone: bool,
        /// The next write fails after it was accepted, as that of a client that is too slow.
        fails_once: bool,
        has_finished: bool,
    }

    #[derive(Clone, Default)]
    struct Socket(Arc<Mutex<Client>>);

    impl Socket {
        fn client(&self) -> parking_lot::MutexGuard<'_, Client> {
            self.0.lock()
        }
    }

    impl AsyncRead for Socket {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Socket {
        fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let mut client = self.client();
            if client.is_gone {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let mut bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<_>>();
            bytes.truncate(client.room);
            if bytes.is_empty() {
                return Poll::Pending;
            }
            client.room -= bytes.len();
            client.received.push(bytes.clone());
            if std::mem::take(&mut client.fails_once) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.client().has_finished = true;
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After the first read.
    fn with_room(room: usize) -> (Socket, CorkedStream<Socket>, Cork<Socket>) {
        let socket = Socket::default();
        socket.client().room = room;
        let (mut stream, cork) = cork(socket.clone());
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_read(&mut context, &mut ReadBuf::new(&mut [0])).is_pending());
        (socket, stream, cork)
    }

    fn poll<C: Future + Unpin>(cork: &Cork<Socket>, connection: &mut C) -> Poll<C::Output> {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut Box::pin(cork.drive(connection))).poll(&mut context)
    }

    #[test]
    fn frames_of_one_poll_leave_in_one_write() {
        let (socket, mut stream, cork) = with_room(usize::MAX);
        let mut connection = Box::pin(async move {
            for frame in [&b"one"[..], b"two", b"three"] {
                stream.write_all(frame).await.expect("written");
                stream.flush().await.expect("flushed");
            }
            std::future::pending::<()>().await;
        });
        for _ in 0..2 {
            assert!(poll(&cork, &mut connection).is_pending());
            assert_eq!(socket.client().received, [b"onetwothree"]);
        }
    }

    /// What is more than a record waits for the client, and all arrives in order.
    #[test]
    fn a_client_that_reads_slowly_holds_back_the_connection() {
        const FRAME: usize = 700;
        let (socket, mut stream, cork) = with_room(0);
        let sent = (0..200_000_usize).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        let frames = sent.clone();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let mut connection = Box::pin(async move {
            for frame in frames.chunks(FRAME) {
                stream.write_all(frame).await.expect("written");
                count.fetch_add(frame.len(), Ordering::Relaxed);
            }
            std::future::pending::<()>().await;
        });
        let mut received = Vec::new();
        while received.len() < sent.len() {
            assert!(poll(&cork, &mut connection).is_pending());
            received.extend(socket.client().received.drain(..).flatten());
            let most = sent.len().min(received.len() + MAX_COLLECTED);
            let accepted = accepted.load(Ordering::Relaxed);
            assert!((most - 2 * FRAME..=most).contains(&accepted), "{accepted} of {most}");
            socket.client().room = 5_000;
        }
        assert_eq!(received, sent);
    }

    #[test]
    fn a_large_frame_is_written_behind_the_collected_ones() {
        let (socket, mut stream, cork) = with_room(usize::MAX);
        let large = vec![b'l'; MAX_COLLECTED];
        let mut connection = Box::pin(async move {
            stream.write_all(b"head").await.expect("written");
            stream.write_all(&large).await.expect("written");
        });
        assert!(poll(&cork, &mut connection).is_ready());
        let client = socket.client();
        assert_eq!((client.received.len(), client.received[0].len()), (1, 4 + MAX_COLLECTED));
        assert!(client.received[0].starts_with(b"headl"));
    }

    #[test]
    fn a_connection_learns_that_its_client_is_gone() {
        let (socket, mut stream, cork) = with_room(usize::MAX);
        socket.client().is_gone = true;
        let mut connection = Box::pin(async move {
            stream.write_all(b"frame").await.expect("collected");
            stream.read_u8().await.expect_err("gone").kind()
        });
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut driving = Box::pin(cork.drive(&mut connection));
        assert!(driving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let ended = driving.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(ended, Poll::Ready(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn the_last_frames_leave_before_the_end() {
        let (socket, mut stream, cork) = with_room(3);
        let mut connection = Box::pin(async move {
            stream.write_all(b"goaway").await.expect("collected");
            stream.shutdown().await
        });
        assert!(poll(&cork, &mut connection).is_pending());
        assert!(!socket.client().has_finished);
        socket.client().room = 3;
        assert!(poll(&cork, &mut connection).is_ready());
        assert_eq!(socket.client().received.concat(), b"goaway");
        assert!(socket.client().has_finished);
    }

    #[test]
    fn nothing_is_written_twice_after_an_error() {
        for large in [0, MAX_COLLECTED] {
            let (socket, mut stream, cork) = with_room(usize::MAX);
            socket.client().fails_once = true;
            let mut connection = Box::pin(async move {
                stream.write_all(b"frame").await.expect("collected");
                let large = stream.write_all(&vec![b'l'; large]).await;
                large.and(stream.shutdown().await).expect_err("too slow").kind()
            });
            assert_eq!(poll(&cork, &mut connection), Poll::Ready(io::ErrorKind::TimedOut));
            assert_eq!(socket.client().received.concat().len(), 5 + large);
        }
    }

    #[test]
    fn the_frames_before_the_first_read_leave_at_once() {
        let socket = Socket::default();
        socket.client().room = usize::MAX;
        let (mut stream, cork) = cork(socket.clone());
        let first = socket.clone();
        let mut connection = Box::pin(async move {
            stream.write_all(b"settings").await.expect("written");
            assert_eq!(first.client().received, [b"settings"]);
            stream.read_u8().await.expect("never");
        });
        assert!(poll(&cork, &mut connection).is_pending());
    }
}
