//! What becomes of a request: everything that is decided before anything is done. No step reads a clock, and only one may
//! wait: for the issuer of a token whose key is unknown.
//!
//! The gateway asks for each request; `bearward explain` asks the same about a request that somebody has in mind.

use std::sync::Arc;

use http::{HeaderValue, Request};

use crate::auth::authenticate::{Asker, Authenticator, Caller};
use crate::auth::bearer::TokenLocation;
use crate::gateway::authorize::{Permit, authorize, without_token};
use crate::gateway::csrf;
use crate::gateway::endpoints::Endpoint;
use crate::gateway::route::{Action, Capture, Route, RouteTable};
use crate::protocols::http::headers::{self, Origin};
use crate::protocols::http::path::CanonicalPath;
use crate::protocols::http::target;
use crate::protocols::tls::Sni;
use crate::protocols::websocket;
use crate::telemetry::access_log::Record;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::Step;

/// All that a judgement needs besides the request. Immutable; a reload makes a new one.
pub struct Decider {
    pub routes: RouteTable,
    pub authenticator: Authenticator,
    /// `limits.headers`
    pub headers: usize,
    /// `limits.uri_size`
    pub uri_size: usize,
}

/// How a request came.
#[derive(Clone, Copy)]
pub struct Arrival<'r> {
    pub asker: Asker<'r>,
    pub origin: &'r Origin,
    /// What the connection was opened for; `None` if nobody is held to it.
    pub sni: Option<&'r Sni>,
}

pub enum Decision {
    Forward {
        permit: Permit,
        host: HeaderValue,
    },
    /// `POST /user/refresh`
    Refresh,
    /// `DELETE /token/{tokenId}`
    Revoke {
        parameter: String,
    },
    /// `GET /.well-known/jwks.json`
    Keys,
    /// One of `[oauth]`
    Endpoint(Endpoint),
    /// `GET /.well-known/oauth-authorization-server`
    Metadata,
}

impl Decider {
    /// Notes in `record` what it finds out on the way, also for a request that is refused further on.
    pub async fn decide<B>(
        &self,
        request: &Request<B>,
        arrival: Arrival<'_>,
        record: &mut Record,
        now: UnixTime,
    ) -> Result<Decision, Reject> {
        // Before anything else is believed: one framing, one host and one path, or none.
        if !headers::is_framed_plainly(request.headers()) {
            return Err(Reject::new(Reason::BadFraming, "a transfer coding other than chunked"));
        }
        if headers::are_too_many(request.headers(), self.headers) {
            return Err(Reject::new(Reason::HeadTooLarge, "more fields than limits.headers"));
        }
        let host = target::host(request, self.uri_size)?;
        record.host = Some(host.clone());
        self.check_direction(host.to_str().unwrap_or_default(), arrival.sni)?;
        arrival.asker.trace.step(Step::Host, || host.to_str().unwrap_or_default().to_owned());
        let path = CanonicalPath::parse(request.uri().path())?;
        arrival.asker.trace.step(Step::Path, || request.uri().path().to_owned());
        match self.routes.find(host.to_str().unwrap_or_default(), request.method(), &path)? {
            Action::Forward(route) => {
                record.route = Some(route.clone());
                arrival.asker.trace.step(Step::Route, || route.name.clone());
                let permit = self.permit(route, request, &host, arrival, record, now).await?;
                Ok(Decision::Forward { permit, host })
            }
            Action::Refresh => Ok(Decision::Refresh),
            Action::Revoke { token_id } => Ok(Decision::Revoke { parameter: token_id.to_owned() }),
            Action::Keys => Ok(Decision::Keys),
            Action::Endpoint(endpoint) => Ok(Decision::Endpoint(endpoint)),
            Action::Metadata => Ok(Decision::Metadata),
        }
    }

    /// A connection is for the host that its handshake named: another one may have another certificate, and other rules (RFC
    /// 9110 section 7.4).
    fn check_direction(&self, host: &str, sni: Option<&Sni>) -> Result<(), Reject> {
        let (Some(sni), host) = (sni, target::without_port(host)) else { return Ok(()) };
        if sni.name.eq_ignore_ascii_case(host) {
            return Ok(());
        }
        if self.routes.serves_alike(&sni.name, host) && sni.same_certificate(host) {
            return Ok(());
        }
        Err(Reject::new(Reason::Misdirected, format!("the handshake asked for {}", sni.name)))
    }

    async fn permit<B>(
        &self,
        route: Arc<Route>,
        request: &Request<B>,
        host: &HeaderValue,
        arrival: Arrival<'_>,
        record: &mut Record,
        now: UnixTime,
    ) -> Result<Permit, Reject> {
        // Only a route that was said to be public skips the token; everything else ends in a verification.
        let route = match without_token(route, request.method(), request.headers()) {
            Ok(permit) => {
                arrival.asker.trace.step(Step::Token, || "none is needed".into());
                return Ok(permit);
            }
            Err(route) => route,
        };
        let caller = self.caller(&route, request, host, arrival, now).await;
        record.caller = caller.as_ref().ok().map(|caller| caller.token().clone());
        let permit = authorize(route, caller)?;
        record.observed = permit.observed().cloned();
        if permit.caller().is_some() {
            arrival.asker.trace.step(Step::Rules, || permit.route().rules());
        }
        Ok(permit)
    }

    async fn caller<B>(
        &self,
        route: &Route,
        request: &Request<B>,
        host: &HeaderValue,
        arrival: Arrival<'_>,
        now: UnixTime,
    ) -> Result<Caller, Reject> {
        let found = route.places.find(request, self.authenticator.token_size)?;
        arrival.asker.trace.step(Step::Token, || format!("in {}", found.location));
        if found.location == TokenLocation::Cookie {
            let websocket = websocket::is_asked_for(request);
            let (method, scheme) = (request.method(), &arrival.origin.scheme);
            let logout = route.capture == Some(Capture::Logout);
            let target = csrf::Target { method, websocket, logout, host, scheme };
            csrf::check(request.headers(), &target, &route.origins)?;
            arrival.asker.trace.step(Step::Origin, || "nothing that another site could have caused".into());
        }
        self.authenticator.authenticate(found.token(), arrival.asker, now).await
    }
}
