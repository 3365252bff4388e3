//! The record of one request.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderValue, Method, Uri, Version};

use super::attempts::{Attempts, UpstreamNames};
use super::oauth::OAuthRequest;
use crate::protocols::http::trace_context::TraceContext;
use crate::protocols::tls::Session;
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::ids::{RequestId, TokenId};
use crate::types::reject::{Reason, Reject};

/// Filled in while the request is handled.
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
    /// `None` if `[trace]` is off.
    pub trace: Option<TraceContext>,
    /// `None` without TLS.
    pub tls: Option<Session>,
    /// 0: the client disconnected before the response.
    pub status: u16,
    pub sent: u64,
    /// Bytes of the body that the gateway read from the client.
    pub received: u64,
    /// If true, the whole response was written to the connection.
    pub complete: bool,
    /// Why the gateway ended the response early.
    pub ended: Option<CloseReason>,
    /// Why the response broke off. `None` if the client left, or if `ended` says it. Boxed because it is rare.
    pub broken: Option<Box<Broken>>,
    /// The name of the route.
    pub route: Option<Arc<str>>,
    pub caller: Option<Arc<VerifiedToken>>,
    /// The token of a request without a caller, if its signature is good: it has expired or is revoked.
    pub rejected_token: OnceLock<Arc<VerifiedToken>>,
    /// The family that a refresh or a revocation was about.
    pub token_id: Option<TokenId>,
    /// Of a client that asks a user, or redeems a code. Boxed because it is rare.
    pub oauth: Option<Box<OAuthRequest>>,
    pub upstream: Option<Arc<UpstreamNames>>,
    /// At which servers of the upstream it was tried.
    pub attempts: Attempts,
    /// If true, the gateway sent a public document or responded to a CORS preflight.
    pub is_public: bool,
    pub rejected: Option<Reject>,
    /// Why an enforcing route would have rejected the request.
    pub observed: Option<Arc<Reject>>,
    pub duration: Duration,
}

/// Why a response broke off after its head.
pub struct Broken {
    pub cause: Reject,
    /// If true, the server is to blame.
    pub is_of_server: bool,
}

impl Record {
    /// Copies what is kept of the request's head. It is a slice of the buffer that the head was read into, and would
    /// keep the whole of it in memory for as long as a tunnel is open.
    pub fn detach(&mut self) {
        let copy = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).ok();
        self.host = self.host.as_ref().and_then(copy);
        self.user_agent = self.user_agent.as_ref().and_then(copy);
        if let Ok(uri) = Uri::try_from(self.uri.to_string()) {
            self.uri = uri;
        }
    }

    /// Returns true if the request needed no token and reached no backend: it was rejected, it was for something
    /// public, or the client left before the gateway had decided. A valid token that was rejected later is no flood of
    /// strangers, and neither is a request that a server did not answer.
    pub(in crate::telemetry) fn is_free(&self) -> bool {
        let is_undecided = || self.status == 0 && self.upstream.is_none();
        let is_rejected = || self.rejected.is_some() && self.attempts.server().is_none();
        self.is_public || self.caller.is_none() && (is_rejected() || is_undecided())
    }

    /// The token of the request, also if the request was rejected for it. Its signature is good.
    pub(in crate::telemetry) fn token(&self) -> Option<&VerifiedToken> {
        let rejected =
            || if self.rejected.is_some() || self.observed.is_some() { self.rejected_token.get() } else { None };
        self.caller.as_ref().or_else(rejected).map(|token| &**token)
    }

    /// How the log names the OAuth client.
    pub(in crate::telemetry) fn oauth_client(&self) -> Option<&str> {
        self.oauth.as_ref()?.client.as_deref()
    }

    /// Why the response broke off after its head, if that is a failure of the server or of the gateway.
    pub(in crate::telemetry) fn broke_off(&self) -> Option<&'static str> {
        let is_too_slow = self.ended == Some(CloseReason::RequestTimeout);
        let broken = self.broken.as_ref().filter(|broken| broken.is_of_server).map(|broken| broken.cause.reason);
        broken.or(is_too_slow.then_some(Reason::RequestTimeout)).map(Reason::code)
    }

    /// The address of the server that the request was sent to last, as in the configuration.
    pub(in crate::telemetry) fn server(&self) -> Option<&str> {
        let servers = &self.upstream.as_ref()?.servers;
        servers.get(self.attempts.server()?).map(String::as_str)
    }

    pub(in crate::telemetry) fn host(&self) -> Option<&str> {
        self.host.as_ref().and_then(|host| host.to_str().ok())
    }

    /// Without the query. Neither a request that cannot be read nor the target of CONNECT has one.
    pub(in crate::telemetry) fn path(&self) -> &str {
        match self.uri.path() {
            "" => "-",
            path => path,
        }
    }

    pub(super) fn protocol(&self) -> &'static str {
        match self.version {
            Version::HTTP_2 => "HTTP/2",
            Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        }
    }

    /// Why the request was rejected, or why its response broke off.
    pub(in crate::telemetry) fn failure(&self) -> Option<&Reject> {
        self.rejected.as_ref().or_else(|| self.broken.as_ref().map(|broken| &broken.cause))
    }

    /// Of [`Record::failure`], or why the request would have been rejected on an enforcing route.
    pub(in crate::telemetry) fn detail(&self) -> Option<&str> {
        let reject = self.failure().or(self.observed.as_deref())?;
        Some(&*reject.detail).filter(|detail| !detail.is_empty())
    }
}
