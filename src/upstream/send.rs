//! Sends one request to one server, over a pooled connection or a new one.

use std::mem;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;

use super::failure::Failure;
use super::pool::Server;
use super::pooled_connection::PooledConnection;
use super::retry::{Attempt, Counts, MAX_CLOSINGS, SendFailure, copy_if_repeatable};
use super::settings::Protocol;
use super::slots::Slot;
use crate::protocols::http::body::Body;
use crate::types::per_worker::PaddedArc;
use crate::types::reject::Reason;

/// The server may be closing a connection that was idle for longer than this. Only then is it worth keeping a copy of
/// the request's head for a retry.
const FRESH: Duration = Duration::from_millis(500);

/// A response, and its connection, which returns to the pool after the body.
pub type UpstreamResponse = (Response<Incoming>, PooledConnection);

impl PaddedArc<Server> {
    /// Sends the request. It is taken out of `request` when it is sent; if it may be sent again, it is back there after
    /// a failure.
    pub(super) async fn send(
        self: &Arc<Self>,
        worker: usize,
        counts: Counts<'_>,
        client: IpAddr,
        request: &mut Request<Body>,
        attempt: Attempt,
    ) -> Result<UpstreamResponse, SendFailure> {
        let slot = self.acquire_slot(worker, client).await.map_err(SendFailure::unsent)?;
        let announced = self.sends_proxy_header.then(|| client.to_canonical());
        match self.protocol {
            Protocol::Http1 => self.send_http1(worker, counts, announced, request, attempt, slot).await,
            // Boxed: it is three times as large, and a request's future is as large as its largest step.
            Protocol::Http2 => Box::pin(self.send_http2(worker, counts, request, attempt, slot)).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        worker: usize,
        counts: Counts<'_>,
        client: Option<IpAddr>,
        request: &mut Request<Body>,
        attempt: Attempt,
        slot: Slot,
    ) -> Result<UpstreamResponse, SendFailure> {
        // The second attempt uses a new connection: the server may be closing a pooled one.
        let may_be_pooled = attempt != Attempt::Retry;
        while let Some((mut connection, idle_for)) = may_be_pooled.then(|| self.take_idle(worker, client)).flatten() {
            let may_break = idle_for > FRESH || self.expects_early_close();
            let copy = (attempt == Attempt::FirstOfSeveral || may_break)
                .then(|| copy_if_repeatable(request, self.protocol))
                .flatten();
            let mut error = match connection.sender.try_send_request(mem::take(request)).await {
                Ok(response) => return Ok((response, PooledConnection::new(self, worker, Some(connection), slot))),
                Err(error) => error,
            };
            // The server closed the connection before the request was sent, or without a response.
            *request = match error.take_message() {
                Some(unsent) => unsent,
                None => {
                    self.expect_early_close();
                    return Err(SendFailure::sent(error.into_error(), copy, request, self.protocol, attempt));
                }
            };
            self.count_retry(counts, Reason::UpstreamBroken, request);
        }
        let mut connection = self.open_http1(client, counts.metrics).await.map_err(SendFailure::unsent)?;
        let copy = (attempt == Attempt::FirstOfSeveral).then(|| copy_if_repeatable(request, self.protocol)).flatten();
        match connection.sender.try_send_request(mem::take(request)).await {
            Ok(response) => Ok((response, PooledConnection::new(self, worker, Some(connection), slot))),
            Err(mut error) => Err(match error.take_message() {
                // The server closed the new connection before the request was sent.
                Some(unsent) => {
                    *request = unsent;
                    SendFailure::unsent(Failure::broken(error.into_error()))
                }
                None => SendFailure::sent(error.into_error(), copy, request, self.protocol, attempt),
            }),
        }
    }

    async fn send_http2(
        self: &Arc<Self>,
        worker: usize,
        counts: Counts<'_>,
        request: &mut Request<Body>,
        attempt: Attempt,
        slot: Slot,
    ) -> Result<UpstreamResponse, SendFailure> {
        let mut unsent_before = 0;
        loop {
            let (mut sender, opened, is_new) =
                self.http2_connection(worker, counts.metrics).await.map_err(SendFailure::unsent)?;
            let copy = copy_if_repeatable(request, self.protocol);
            match sender.try_send_request(mem::take(request)).await {
                Ok(response) => return Ok((response, PooledConnection::new(self, worker, None, slot))),
                Err(mut error) => match error.take_message() {
                    // The server closed the connection before the request was sent.
                    Some(unsent) => {
                        *request = unsent;
                        self.drop_http2(worker, opened).await;
                        // One that was open for other requests may end at any time. A server that ends a new one is
                        // not asked for a third.
                        if unsent_before > 0 && is_new || unsent_before == MAX_CLOSINGS {
                            return Err(SendFailure::unsent(Failure::broken(error.into_error())));
                        }
                        self.count_retry(counts, Reason::UpstreamBroken, request);
                        unsent_before += 1;
                    }
                    None => return Err(SendFailure::sent(error.into_error(), copy, request, self.protocol, attempt)),
                },
            }
        }
    }
}
