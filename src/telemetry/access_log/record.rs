//! What is known of one request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Uri, Version};

use crate::gateway::route::Route;
use crate::limits::rate_limit::RateLimitHeaders;
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::ids::{RequestId, TokenId};
use crate::types::reject::Reject;

/// What is known of one request, filled in on its way.
#[derive(Default)]
pub struct Record {
    pub request_id: RequestId,
    pub time: UnixTime,
    pub client: Option<IpAddr>,
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub host: Option<HeaderValue>,
    pub user_agent: Option<HeaderValue>,
    /// 0: the client left before there was an answer.
    pub status: u16,
    pub sent: u64,
    /// The whole answer was handed to the connection.
    pub complete: bool,
    /// Why we ended it before it was.
    pub ended: Option<CloseReason>,
    pub route: Option<Arc<Route>>,
    pub caller: Option<Arc<VerifiedToken>>,
    /// The family a call on tokens was about.
    pub token_id: Option<TokenId>,
    pub upstream: Option<Arc<str>>,
    pub refused: Option<Reject>,
    /// What it would have been refused for, on a route that does not enforce that.
    pub observed: Option<Arc<Reject>>,
    /// For the answer's headers, not for the log.
    pub told: Option<Box<RateLimitHeaders>>,
    pub duration: Duration,
}
