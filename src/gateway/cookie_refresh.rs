//! Refreshes the session of a browser when the access token in its cookie has expired (`token_from = ["login_cookie"]`).
//!
//! A page makes many requests at once, all with the same spent cookie. They share one refresh: the first one rotates,
//! and the others wait and get the same pair. The access token is not counted as used here, because the browser may
//! never get the response. If it does not, its old refresh token still works, by the rules for lost responses.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, header};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::auth::authenticate::Caller;
use crate::auth::bearer::{FoundToken, TokenLocation, login_cookies};
use crate::auth::token_cache::CachedToken;
use crate::broker::refresh::RefreshRequest;
use crate::broker::{Broker, TokenPair};
use crate::gateway::call_checks::CallChecks;
use crate::gateway::context::RequestContext;
use crate::gateway::forward::Forwarded;
use crate::tokens::bound::Bound;
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Refreshes that have ended are forgotten when there are more than this.
const MAX_ENDED: usize = 1024;

/// The refreshes that are running, and their results for `tokens.refresh_grace`, by a hash of both cookies.
#[derive(Default)]
pub struct CookieRefresh(Mutex<HashMap<[u8; 32], Arc<Slot>>>);

/// `None` while the first request refreshes, and if that failed.
type Slot = AsyncMutex<Option<Refreshed>>;

struct Refreshed {
    /// Of the uptime: a clock that is set back must not keep spent cookies alive.
    until: Uptime,
    access: Arc<CachedToken>,
    cookies: NewCookies,
}

impl Refreshed {
    /// Returns true within `tokens.refresh_grace`.
    fn is_current(&self, now: Uptime) -> bool {
        now < self.until
    }
}

/// `Set-Cookie` for the response of a request that was refreshed.
#[derive(Clone)]
pub struct NewCookies([HeaderValue; 2]);

/// Returns true if a refresh can help: the token expired, or its key was revoked and may still refresh.
pub fn can_help(reject: &Reject, context: &RequestContext<'_>) -> bool {
    matches!(reject.reason, Reason::Expired | Reason::KeyRevoked)
        && context.route.as_ref().is_some_and(|route| route.places.login_cookie)
}

/// Returns true if the gateway refreshes the session of the browser that it has rejected. `rejected`: why, if it has.
pub fn is_due(rejected: Option<&Reject>, context: &RequestContext<'_>) -> bool {
    context.source.kind.gets_responses() && rejected.is_some_and(|reject| can_help(reject, context))
}

impl CookieRefresh {
    /// The caller with a new access token. Fails with `expired` if the session cannot be refreshed. The request has
    /// passed the check of its origin before its token was found to be expired.
    pub async fn refresh<B>(
        &self,
        request: &Request<B>,
        expired: Reject,
        checks: &CallChecks<'_>,
        broker: &Broker,
        context: &RequestContext<'_>,
    ) -> Result<(Caller, NewCookies), Reject> {
        let authenticator = checks.authenticator;
        let Some(cookies) = ExpiredCookies::of(request, &expired, authenticator.token_size, context)? else {
            return Err(expired);
        };
        let slot = self.slot(cookies.hash(), context.clock.uptime());
        let mut slot = slot.lock().await;
        if let Some(done) = slot.as_ref().filter(|done| done.is_current(context.clock.uptime())) {
            let caller = authenticator.authenticate_known(done.access.clone(), &context.auth()).await?;
            return Ok((caller, done.cookies.clone()));
        }
        let outcome = rotate(&cookies, checks, broker, context).await;
        checks.throttle.count_outcome(&outcome, context.client());
        let pair = outcome.map_err(|reject| session_ended(reject, expired))?;
        let cookies = NewCookies::of(&pair.access_token, &pair.refresh_token)?;
        let caller = authenticator.authenticate_issued(&pair.access_token, &context.auth()).await?;
        let until = context.clock.uptime() + broker.settings.lifetimes.grace;
        let access = caller.cached().clone();
        *slot = Some(Refreshed { until, access, cookies: cookies.clone() });
        Ok((caller, cookies))
    }

    fn slot(&self, hash: [u8; 32], now: Uptime) -> Arc<Slot> {
        let mut slots = self.0.lock();
        if slots.len() >= MAX_ENDED {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_current(slot, now));
        }
        slots.entry(hash).or_default().clone()
    }
}

/// The cookies of a browser with an access token that has expired.
pub struct ExpiredCookies<'r> {
    pub access: FoundToken<'r>,
    refresh_token: &'r str,
}

impl<'r> ExpiredCookies<'r> {
    /// Returns the cookies with which the gateway can help a request that it has rejected.
    pub fn of<B>(
        request: &'r Request<B>,
        rejected: &Reject,
        token_size: usize,
        context: &RequestContext<'_>,
    ) -> Result<Option<Self>, Reject> {
        if !can_help(rejected, context) {
            return Ok(None);
        }
        let Some(route) = context.route.as_ref() else { return Ok(None) };
        let Some(refresh_token) = login_cookies::refresh_token(request.headers()) else { return Ok(None) };
        let access = route.places.find(request, token_size)?;
        if access.location != TokenLocation::Cookie {
            return Ok(None);
        }
        Ok(Some(ExpiredCookies { access, refresh_token }))
    }

    fn hash(&self) -> [u8; 32] {
        let access = secret::digest(&[self.access.token().as_bytes()]);
        secret::digest(&[&access, self.refresh_token.as_bytes()])
    }
}

async fn rotate(
    cookies: &ExpiredCookies<'_>,
    checks: &CallChecks<'_>,
    broker: &Broker,
    context: &RequestContext<'_>,
) -> Result<TokenPair, Reject> {
    let token = checks.expired_cookie(cookies.access.token(), context).await?;
    let request = RefreshRequest::of_cookie(cookies.refresh_token);
    broker.refresh(request, &token, Bound::default(), context.event()).await
}

fn is_current(slot: &Slot, now: Uptime) -> bool {
    slot.try_lock().is_ok_and(|done| done.as_ref().is_some_and(|done| done.is_current(now)))
}

/// A browser cannot do anything with `invalid_grant`: it gets 401, as without a session.
pub fn session_ended(reject: Reject, expired: Reject) -> Reject {
    match reject.reason.public_code() {
        "invalid_grant" => {
            Reject::new(expired.reason, format!("and the refresh token is rejected: {}", reject.reason.code()))
        }
        _ => reject,
    }
}

impl NewCookies {
    pub fn of(access_token: &str, refresh_token: &str) -> Result<Self, Reject> {
        let too_large = || Reject::new(Reason::LoginCapture, "the access token is too large for a cookie: 4096 bytes");
        login_cookies::set(access_token, refresh_token).map(NewCookies).ok_or_else(too_large)
    }

    /// For a session that has ended.
    pub fn none() -> Self {
        NewCookies(login_cookies::clear())
    }

    pub fn add_to(self, mut forwarded: Forwarded) -> Forwarded {
        self.add_to_headers(forwarded.response.headers_mut());
        forwarded
    }

    /// A cache must not give them to another client (RFC 9111 section 7.3).
    pub fn add_to_headers(self, headers: &mut HeaderMap) {
        for cookie in self.0 {
            headers.append(header::SET_COOKIE, cookie);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for name in ["cdn-cache-control", "surrogate-control"] {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tokens::jwt::VerifiedToken;

    const NOW: Uptime = Uptime::from_secs(100);

    fn refreshed(until: Uptime) -> Refreshed {
        let token = VerifiedToken::with_subject("alice".into());
        let access = Arc::new(CachedToken::new("token", token, Vec::new(), 0));
        Refreshed { until, access, cookies: NewCookies::none() }
    }

    fn hash(number: usize) -> [u8; 32] {
        secret::digest(&[&number.to_be_bytes()])
    }

    #[test]
    fn refreshes_that_have_ended_are_forgotten() {
        const RUNNING: usize = MAX_ENDED - 1;
        let refreshes = CookieRefresh::default();
        let end = |number, outcome| *refreshes.slot(hash(number), NOW).try_lock().expect("free") = outcome;
        end(0, Some(refreshed(NOW + Duration::from_millis(1))));
        end(1, Some(refreshed(NOW)));
        (2..RUNNING).for_each(|failed| end(failed, None));
        let running = refreshes.slot(hash(RUNNING), NOW);
        assert_eq!(refreshes.0.lock().len(), MAX_ENDED);
        let new = refreshes.slot(hash(MAX_ENDED), NOW);
        let known = refreshes.0.lock();
        let left = [0, 1, 2, RUNNING, MAX_ENDED].map(|number| known.contains_key(&hash(number)));
        assert_eq!((left, known.len()), ([true, false, false, true, true], 3));
        assert!(Arc::ptr_eq(&running, &known[&hash(RUNNING)]) && Arc::ptr_eq(&new, &known[&hash(MAX_ENDED)]));
    }
}
