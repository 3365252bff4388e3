//! Runs the requests of HTTP/2 connections, and gives up those whose client makes no room for the answer.
//!
//! One connection can hold many answers back without ever stopping to read: by windows that it never widens. Each would keep
//! a connection to a backend.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::silence::Silence;
use crate::waiting;

#[derive(Clone)]
pub(super) struct Executor {
    /// `timeouts.write`
    pub(super) write: Duration,
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
{
    fn execute(&self, request: F) {
        // What a request starts is its WebSocket's way out. That has nothing to send most of the time, and a limit of its own.
        if waiting::is_watched() {
            tokio::spawn(async move { drop(request.await) });
            return;
        }
        let mut stall = Silence::of_at_most(self.write);
        tokio::spawn(async move {
            let mut request = pin!(request);
            std::future::poll_fn(|context| match waiting::watched(|| request.as_mut().poll(context)) {
                (Poll::Ready(_), _) => Poll::Ready(()),
                (Poll::Pending, true) => {
                    stall.broken();
                    Poll::Pending
                }
                (Poll::Pending, false) => stall.poll(context).map(drop),
            })
            .await;
        });
    }
}
