//! Bytes that a stream has accepted and not yet written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// Maximum slices of one write that follow the bytes.
const SLICES: usize = 15;

/// Gives its memory back when everything is written.
#[derive(Default)]
pub(super) struct Unwritten(Vec<u8>);

/// What a stream accepted in one write.
pub(super) struct Written {
    pub(super) bytes: usize,
    /// How many of them were in the slices behind the unwritten bytes.
    pub(super) of_slices: usize,
}

impl Unwritten {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// `capacity`: how many bytes are reserved if there are none yet.
    pub(super) fn append(&mut self, slices: &[IoSlice<'_>], capacity: usize) {
        if self.0.is_empty() {
            self.0.reserve_exact(capacity);
        }
        slices.iter().for_each(|slice| self.0.extend_from_slice(slice));
    }

    pub(super) fn discard(&mut self) {
        self.0 = Vec::new();
    }

    /// Writes these bytes, and the beginning of `slices` behind them.
    pub(super) fn poll_write_with<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<Written>> {
        let mut together = [IoSlice::new(&[]); SLICES + 1];
        let used = 1 + slices.len().min(SLICES);
        together[1..used].copy_from_slice(&slices[..used - 1]);
        together[0] = IoSlice::new(&self.0);
        let bytes = ready!(Pin::new(stream).poll_write_vectored(context, &together[..used]))?;
        if bytes == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let of_slices = bytes.saturating_sub(self.0.len());
        self.0.drain(..bytes - of_slices);
        if self.0.is_empty() {
            self.discard();
        }
        Poll::Ready(Ok(Written { bytes, of_slices }))
    }
}
