//! Bodies of the gateway's own, polled one frame at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body as _;

use super::*;

/// Counts what a body reports.
#[derive(Clone, Default)]
struct Counter {
    data: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
    complete: Arc<AtomicUsize>,
}

impl Counter {
    fn counts(&self) -> [usize; 3] {
        [&self.data, &self.errors, &self.complete].map(|count| count.load(Ordering::Relaxed))
    }
}

impl BodyObserver for Counter {
    fn on_data(&mut self, data: &mut Bytes) {
        self.data.fetch_add(data.len(), Ordering::Relaxed);
    }

    fn on_error(&mut self, _error: &BodyError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    fn on_complete(&mut self) {
        self.complete.fetch_add(1, Ordering::Relaxed);
    }
}

/// The length of the next frame, its error, or `end`.
fn poll(body: &mut Body) -> Poll<String> {
    let polled = std::pin::Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    polled.map(|frame| match frame {
        None => "end".to_owned(),
        Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len).to_string(),
        Some(Err(error)) => format!("{error:?}"),
    })
}

fn ready(text: &str) -> Poll<String> {
    Poll::Ready(text.to_owned())
}

#[test]
fn a_length_may_be_as_large_as_the_limit() {
    let exceeds = [2, 3, 4].map(|limit| Body::full("abc").is_known_to_exceed(limit));
    assert_eq!(exceeds, [true, false, false]);
    assert_eq!(poll(&mut Body::full("abc").with_max_size(3)), ready("3"));
}

#[test]
fn a_body_is_complete_with_its_last_frame() {
    let counter = Counter::default();
    let mut body = Body::full("abc").with_observer(Box::new(counter.clone()));
    assert_eq!((poll(&mut body), counter.counts()), (ready("3"), [3, 0, 1]));
    assert_eq!((poll(&mut body), counter.counts()), (ready("end"), [3, 0, 1]));
    let counter = Counter::default();
    drop(Body::full("abc").with_observer(Box::new(counter.clone())));
    assert_eq!(counter.counts(), [0, 0, 0], "dropped before its end");
    let _ = Body::empty().with_observer(Box::new(counter.clone()));
    assert_eq!(counter.counts(), [0, 0, 1]);
}

#[test]
fn a_body_with_trailers_is_complete_after_them() {
    let counter = Counter::default();
    let trailers = http::HeaderMap::from_iter([(http::header::AGE, http::HeaderValue::from(0))]);
    let mut body = Body::with_trailers("abc", trailers).with_observer(Box::new(counter.clone()));
    assert_eq!((poll(&mut body), counter.counts()), (ready("3"), [3, 0, 0]));
    assert!(!body.is_end_stream());
    assert_eq!((poll(&mut body), counter.counts()), (ready("0"), [3, 0, 1]), "the trailers");
    assert_eq!((poll(&mut body), body.is_end_stream()), (ready("end"), true));
}

/// hyper writes a head together with the first frame.
#[test]
fn an_error_before_the_first_frame_waits_for_the_head() {
    let counter = Counter::default();
    let mut body = Body::full("abc").with_max_size(2).with_observer(Box::new(counter.clone()));
    assert_eq!((poll(&mut body), counter.counts()), (Poll::Pending, [0, 1, 0]));
    assert!(!body.is_end_stream());
    assert_eq!((poll(&mut body), counter.counts()), (ready("TooLarge"), [0, 1, 0]));
}

#[test]
fn an_empty_body_is_not_truncated() {
    assert_eq!(poll(&mut Body::empty().fail_if_truncated(true)), ready("end"));
}
