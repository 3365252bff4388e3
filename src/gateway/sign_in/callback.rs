//! The way back: the browser brings a code, and gets the cookie of its login.
//!
//! The order of the checks: the form of the request, the attempt of this browser (which stops login CSRF), the issuer
//! (which stops mix-up), the use of the attempt, and only then a request to the provider.
//!
//! Only a callback with its attempt counts for the address that it comes from. One without reaches no provider, and
//! every page of the web can make the browsers of an address send some.

use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use super::navigation::is_part_of_page;
use super::parameters::{Callback, Outcome};
use super::service::{SignIn, presented};
use super::{attempt_cookies, paths};
use crate::auth::bearer::session_cookie;
use crate::broker::sign_in::{LoginLifetimes, Returned, SignInProvider, SignedIn};
use crate::gateway::context::RequestContext;
use crate::limits::throttle;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::sign_in::attempt::{self, Attempt};
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// How long a used attempt is remembered: it lives for 10 minutes.
const USED: Duration = Duration::from_mins(15);

/// A callback and the attempt that it belongs to.
struct AttemptCallback {
    /// The name of the cookie of the attempt.
    name: String,
    attempt: Attempt,
    callback: Callback,
}

impl SignIn {
    /// `GET {path}/callback/{provider}`
    pub(super) async fn callback<B>(
        &self,
        provider: &str,
        request: &Request<B>,
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let failed = |wrong: &'static str| Reject::new(Reason::SignInFailed, wrong);
        if is_part_of_page(request.headers()) {
            return Err(failed("only a page load can be a callback"));
        }
        let with = self.provider(provider)?;
        let origin = self.own_origin(context)?.to_owned();
        let callback = Callback::read(request.uri().query().unwrap_or_default()).map_err(failed)?;
        let Some(found) = self.attempt(provider, callback, request.headers(), context) else {
            return self.without_attempt(provider, &origin, request.headers(), context).await;
        };
        let throttle = &self.broker.throttle;
        let client = context.client();
        throttle.check_failures(client)?;
        throttle.count_call(client)?;
        // Its code could be invented.
        let mut guess = Some(throttle.begin_attempt(client)?);
        let outcome = self.finish(with, &found, &origin, request.headers(), &mut guess, context).await;
        if let Some(guess) = guess {
            // A user that the provider or the rules reject has invented nothing.
            guess.end(outcome.as_ref().is_err_and(|reject| reject.reason == Reason::SignInFailed));
        }
        let mut response = match outcome {
            Ok(response) => response,
            Err(reject) => {
                let again = self.link_again(provider, &found.attempt.return_path);
                self.show(reject, Some(&again), context)
            }
        };
        let cleared = attempt_cookies::clear(request.headers(), &found.name);
        response.headers_mut().extend(cleared.map(|cookie| (SET_COOKIE, cookie)));
        Ok(response)
    }

    /// The attempt of this browser with this state. Its cookie was set here, for this provider, within ten minutes.
    fn attempt(
        &self,
        provider: &str,
        callback: Callback,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Option<AttemptCallback> {
        let state = &*callback.state;
        let name = attempt::cookie_name(state)?;
        let sealed = attempt_cookies::find(headers, &name)?;
        let attempt = attempt::open(&name, &sealed, &self.broker.roots)?;
        let is_this = attempt.is_current(context.now) && attempt.provider == provider && attempt.has_state(state);
        is_this.then_some(AttemptCallback { name, attempt, callback })
    }

    /// A second tab, the back button, or a link from elsewhere: a code without its attempt is never used.
    async fn without_attempt(
        &self,
        provider: &str,
        origin: &str,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let failed = |detail: &'static str| Reject::new(Reason::SignInFailed, detail);
        let target = match self.sessions(headers, context).await?.is_empty() {
            false => format!("{origin}/"),
            // A browser that keeps no cookies would go in a circle. The starts are counted.
            true if session_cookie::starts(headers).is_none() => {
                return Err(failed("the browser has no cookie of this attempt"));
            }
            true => format!("{origin}{}", self.path_of(paths::SIGN_IN, provider)),
        };
        respond::redirect(StatusCode::SEE_OTHER, &target).ok_or_else(|| failed("the target is no header"))
    }

    /// `guess`: taken when the code goes to the provider.
    async fn finish(
        &self,
        with: &SignInProvider,
        found: &AttemptCallback,
        origin: &str,
        headers: &HeaderMap,
        guess: &mut Option<throttle::Attempt>,
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let failed = |wrong: &'static str| Reject::new(Reason::SignInFailed, wrong);
        let AttemptCallback { attempt, callback, .. } = found;
        // A provider of the same name can have another issuer since a reload.
        if attempt.issuer != *with.provider.issuer {
            return Err(failed("the attempt was at another issuer"));
        }
        let announced = with.metadata_to_end(context.clock.uptime()).await?.sends_issuer;
        callback.check_issuer(&attempt.issuer, announced).map_err(failed)?;
        let code = match &callback.outcome {
            Outcome::Code(code) => code,
            Outcome::Error(error) => return Err(declined(error)),
        };
        let target = format!("{origin}{}", attempt.return_path);
        let back = respond::redirect(StatusCode::SEE_OTHER, &target);
        let mut back = back.ok_or_else(|| failed("the target is no header"))?;
        let key = secret::digest(&[b"state", callback.state.as_bytes()]);
        let Some(_turn) = self.running.begin(key) else {
            // The other one counts.
            if let Some(guess) = guess.take() {
                guess.end(false);
            }
            self.running.wait(&key).await;
            return Ok(back);
        };
        if self.use_up(&callback.state, code, attempt, context).await? != Marked::First {
            return Ok(back);
        }
        let redirect_uri = format!("{origin}{}", self.path_of(paths::CALLBACK, &with.provider.name));
        let replaces = self.replaced(headers).await?;
        let returned = Returned { attempt: attempt.clone(), code: code.clone(), redirect_uri, replaces };
        let settings = &self.settings;
        let event = context.event();
        let lifetimes = LoginLifetimes { absolute: settings.absolute, idle: settings.idle };
        let signed_in = self.broker.sign_in(with, returned, guess.take(), lifetimes, &self.clock, event).await?;
        context.record.token_id = Some(signed_in.family.id);
        let internal = || Reject::new(Reason::Internal, "cannot make the cookie of a login");
        back.headers_mut().append(SET_COOKIE, cookie(&signed_in).ok_or_else(internal)?);
        Ok(back)
    }

    /// The code may be sent once: a second use makes the provider revoke the tokens of the first.
    async fn use_up(
        &self,
        state: &str,
        code: &str,
        attempt: &Attempt,
        context: &RequestContext<'_>,
    ) -> Result<Marked, Reject> {
        let mark = Mark {
            kind: MarkKind::SignIn,
            issuer: attempt.issuer.clone(),
            key: state.to_owned(),
            value: secret::digest(&[code.as_bytes()]),
            until: context.now + USED,
        };
        let marked = self.broker.store.mark(mark, Vec::new(), context.event());
        Ok(self.broker.with_timeout(marked).await?)
    }

    /// The family of the handle that came along. It ends with the new login, so that no handle is used for two.
    async fn replaced(&self, headers: &HeaderMap) -> Result<Option<TokenId>, Reject> {
        for presented in presented(headers) {
            if let Some((family, _)) = self.broker.login_of(&presented).await? {
                return Ok(Some(family.id));
            }
        }
        Ok(None)
    }
}

/// It lives as long as the login at most, so that sliding needs no new cookie.
fn cookie(signed_in: &SignedIn) -> Option<HeaderValue> {
    let family = &signed_in.family;
    session_cookie::set(session_cookie::SESSION, &signed_in.handle, family.absolute_expiry.since(family.created_at))
}

/// The error of a provider. Its description is not shown.
fn declined(error: &str) -> Reject {
    let known = ["access_denied", "login_required", "interaction_required", "consent_required"];
    match error {
        "server_error" | "temporarily_unavailable" => {
            Reject::new(Reason::ProviderUnavailable, "the provider sent the browser back with an error of its own")
        }
        error if known.contains(&error) => {
            Reject::new(Reason::SignInDeclined, "the user, or the provider, declined the sign-in")
        }
        _ => Reject::new(Reason::SignInFailed, "the provider sent the browser back with an error"),
    }
}
