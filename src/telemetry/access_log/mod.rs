//! One line a request, also when the client leaves, written to the disk off the hot path.
//!
//! A worker fills in a [`Record`] and writes it as a line on a page of its own; a thread collects the pages. A request
//! pays for its line, half a microsecond, and an uncontended lock, never for a system call. To hand the record itself over
//! would cost more in all: it is four times as large as its line, out of the cache when the other thread looks at it, and
//! what it owns would be freed by another thread than made it. If the writer cannot keep up (a full disk, a stalled
//! terminal) lines are dropped and counted, not waited for.
//!
//! The query is not logged: it is where other people's secrets are. Nor is any header but User-Agent.

mod line;
mod writer;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Uri, Version};

use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::ids::{RequestId, TokenId};
use crate::types::reject::Reject;

pub use writer::{AccessLog, Buffer};

/// `[access_log]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub target: Target,
    pub format: Format,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Off,
    Stdout,
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

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
    /// Its name.
    pub route: Option<Arc<str>>,
    pub caller: Option<Arc<VerifiedToken>>,
    /// The family a call on tokens was about.
    pub token_id: Option<TokenId>,
    pub upstream: Option<Arc<str>>,
    pub refused: Option<Reject>,
    /// What it would have been refused for, on a route that does not enforce that.
    pub observed: Option<Arc<Reject>>,
    pub duration: Duration,
}
