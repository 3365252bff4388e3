//! At which servers of an upstream a request was tried, and how long that took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::uri::Scheme;
use parking_lot::Mutex;

use crate::protocols::http::trace_context::TraceContext;
use crate::types::reject::Reason;

/// The names of an upstream and of its servers, shared by all records of a worker.
#[derive(Clone)]
#[repr(align(128))]
pub struct UpstreamNames {
    pub name: Arc<str>,
    pub scheme: Scheme,
    /// The address of each server, as in the configuration.
    pub servers: Vec<String>,
}

/// Written through `&` while the request is on its way, because the record stays with the wait for the response.
#[derive(Default)]
pub struct Attempts {
    /// When the gateway began to send the request. `None`: it was not forwarded.
    began: Option<Instant>,
    /// Until the head of the response, or until no more attempts were made.
    took: Option<Duration>,
    /// The place of the server that has the request, from 1.
    server: AtomicU8,
    /// What the servers get of the trace.
    trace: Option<TraceContext>,
    /// Those that were followed by another one. Nearly always empty, so that it costs no memory.
    failed: Mutex<Vec<FailedAttempt>>,
}

/// An attempt after which the request was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The place of the server in the upstream.
    pub server: Option<usize>,
    pub began: Instant,
    pub ended: Instant,
    pub reason: Reason,
}

impl Attempts {
    /// The request is sent from now on.
    pub fn begin(trace: Option<TraceContext>, now: Instant) -> Self {
        Attempts { began: Some(now), trace, ..Attempts::default() }
    }

    /// The server at this place gets the request.
    pub fn send_to(&self, server: usize) {
        self.server.store(u8::try_from(server + 1).unwrap_or(0), Ordering::Relaxed);
    }

    /// The current attempt failed, and the request with these headers is sent again.
    pub fn fail(&self, reason: Reason, headers: &mut HeaderMap) {
        let Some(first) = self.began else { return };
        let server = self.server();
        let mut failed = self.failed.lock();
        let began = failed.last().map_or(first, |last| last.ended);
        failed.push(FailedAttempt { server, began, ended: Instant::now(), reason });
        if let Some(trace) = &self.trace {
            trace.attempted(failed.len()).set_field(headers);
        }
    }

    /// There is the head of a response, or no further attempt. The first call counts.
    pub fn end(&mut self) {
        if let (None, Some(began)) = (self.took, self.began) {
            self.took = Some(began.elapsed());
        }
    }

    /// The place of the server that the request was sent to last.
    pub fn server(&self) -> Option<usize> {
        usize::from(self.server.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// How long the gateway waited for the head of the response.
    pub fn duration(&self) -> Option<Duration> {
        self.took
    }

    pub fn retries(&self) -> usize {
        self.failed.lock().len()
    }

    /// When the last attempt began, and when it ended.
    pub fn last(&self) -> Option<(Instant, Instant)> {
        let first = self.began?;
        let took = self.took?;
        Some((self.failed.lock().last().map_or(first, |last| last.ended), first + took))
    }

    pub fn failed(&self) -> Vec<FailedAttempt> {
        self.failed.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_begins_where_the_last_one_ended() {
        let mut attempts = Attempts::begin(None, Instant::now());
        attempts.send_to(1);
        attempts.fail(Reason::UpstreamConnect, &mut HeaderMap::new());
        attempts.send_to(0);
        attempts.end();
        let last = attempts.last().expect("it ended");
        let took = attempts.duration();
        attempts.end();
        assert_eq!((attempts.duration(), attempts.server(), attempts.retries()), (took, Some(0), 1));
        let failed = attempts.failed();
        assert_eq!((failed[0].server, failed[0].reason), (Some(1), Reason::UpstreamConnect));
        assert!(failed[0].began <= failed[0].ended && failed[0].ended == last.0 && last.0 <= last.1);
    }

    #[test]
    fn a_request_that_is_not_forwarded_has_no_attempt() {
        let mut attempts = Attempts::default();
        attempts.fail(Reason::UpstreamConnect, &mut HeaderMap::new());
        attempts.end();
        assert_eq!((attempts.server(), attempts.duration(), attempts.retries()), (None, None, 0));
        assert!(attempts.last().is_none());
    }
}
