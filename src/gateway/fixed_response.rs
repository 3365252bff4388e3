//! Responses that the configuration has: `[route.respond]`, and the page of `[maintenance]`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::protocols::http::body::Body;
use crate::types::reject::{Reason, Reject};

/// A body and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub body: Bytes,
    pub content_type: HeaderValue,
}

impl Page {
    /// Puts the page in the place of a body.
    pub(super) fn replace(&self, response: &mut Response<Body>) {
        *response.body_mut() = Body::full(self.body.clone());
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
    }
}

/// `[route.respond]`
#[derive(Clone, Debug, PartialEq)]
pub struct FixedResponse {
    pub status: StatusCode,
    /// `None`: the response has no body.
    pub page: Option<Page>,
    pub retry_after: Option<Duration>,
}

impl FixedResponse {
    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        if let Some(page) = &self.page {
            page.replace(&mut response);
        }
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}

/// `[maintenance]`, of a route that it applies to.
#[derive(Clone, Debug, PartialEq)]
pub struct Maintenance {
    pub retry_after: Duration,
    /// `None`: the response is JSON, as that of every rejection.
    pub page: Option<Page>,
}

impl Maintenance {
    pub(super) fn reject(&self) -> Reject {
        Reject::new(Reason::Maintenance, "`maintenance` is on").with_retry_after(self.retry_after)
    }
}
