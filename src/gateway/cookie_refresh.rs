//! Refreshes the session of a browser when the access token in its cookie has expired (`token_from = ["login_cookie"]`).
//!
//! A page makes many requests at once, all with the same spent cookie. They share one refresh: the first one rotates,
//! and the others wait and get the same pair. The access token is not counted as used here, because the browser may
//! never get the response. If it does not, its old refresh token still works, by the rules for lost responses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderValue, Request, header};
use tokio::sync::Mutex as AsyncMutex;

use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::{TokenLocation, login_cookies};
use crate::auth::token_cache::CachedToken;
use crate::broker::Broker;
use crate::broker::refresh::RefreshRequest;
use crate::gateway::context::RequestContext;
use crate::gateway::forward::Forwarded;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Finished refreshes are forgotten when there are more sessions than this. Only a genuine access token adds one.
const MAX_IDLE_SLOTS: usize = 1024;

/// The refreshes that are running, and their results for `tokens.refresh_grace`.
#[derive(Default)]
pub struct CookieRefresh(Mutex<HashMap<TokenId, Arc<Slot>>>);

type Slot = AsyncMutex<Option<Refreshed>>;

struct Refreshed {
    /// Hash of the refresh token that was presented.
    presented: [u8; 32],
    until: UnixTime,
    access: Arc<CachedToken>,
    cookies: NewCookies,
}

/// `Set-Cookie` for the response of a request that was refreshed.
#[derive(Clone)]
pub struct NewCookies([HeaderValue; 2]);

/// Returns true if a refresh can help: the token expired, or its key was revoked and may still refresh.
pub fn can_help(reject: &Reject, context: &RequestContext<'_>) -> bool {
    matches!(reject.reason, Reason::Expired | Reason::KeyRevoked)
        && context.route.as_ref().is_some_and(|route| route.places.login_cookie)
}

impl CookieRefresh {
    /// The caller with a new access token. Fails with `expired` if the session cannot be refreshed. The request has
    /// passed the check of its origin before its token was found to be expired.
    pub async fn refresh<B>(
        &self,
        request: &Request<B>,
        expired: Reject,
        (broker, authenticator): (&Broker, &Authenticator),
        context: &RequestContext<'_>,
    ) -> Result<(Caller, NewCookies), Reject> {
        let (Some(presented), Some(route)) = (login_cookies::refresh_token(request.headers()), &context.route) else {
            return Err(expired);
        };
        let found = route.places.find(request, authenticator.token_size)?;
        if found.location != TokenLocation::Cookie {
            return Err(expired);
        }
        let idle = broker.settings.lifetimes.idle;
        let bearer = authenticator.authenticate_expired(found.token(), idle, &context.auth()).await?;
        let Some(family) = bearer.family else { return Err(expired) };

        let slot = self.slot(family, context.now);
        let mut slot = slot.lock().await;
        let hash = secret::digest(&[presented.as_bytes()]);
        if let Some(done) = slot.as_ref().filter(|done| done.presented == hash && context.now < done.until) {
            let caller = authenticator.authenticate_known(done.access.clone(), &context.auth())?;
            return Ok((caller, done.cookies.clone()));
        }
        let refresh = RefreshRequest::of_cookie(presented);
        let pair =
            broker.refresh(refresh, &bearer, context.event()).await.map_err(|reject| session_ended(reject, expired))?;
        let cookies = NewCookies::of(&pair.access_token, &pair.refresh_token)?;
        let caller = authenticator.authenticate_issued(&pair.access_token, &context.auth()).await?;
        let until = context.now + broker.settings.lifetimes.grace;
        let access = caller.cached().clone();
        *slot = Some(Refreshed { presented: hash, until, access, cookies: cookies.clone() });
        Ok((caller, cookies))
    }

    fn slot(&self, family: TokenId, now: UnixTime) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MAX_IDLE_SLOTS {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_current(slot, now));
        }
        slots.entry(family).or_default().clone()
    }
}

fn is_current(slot: &Slot, now: UnixTime) -> bool {
    slot.try_lock().is_ok_and(|done| done.as_ref().is_some_and(|done| now < done.until))
}

/// A browser cannot do anything with `invalid_grant`: it gets 401, as without a session.
fn session_ended(reject: Reject, expired: Reject) -> Reject {
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
