//! The user of a browser: the sessions that it has, and where the user signs in.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};

use super::call::{AuthorizationCall, redirect};
use super::clients::sign_in_place;
use super::pages;
use crate::auth::bearer::{BearerToken, login_cookies};
use crate::gateway::oauth::metadata;
use crate::gateway::sign_in::{SignIn, is_of_other_site, paths};
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::request::SignInWish;
use crate::tokens::bound::Bound;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::{Family, auth_time};
use crate::tokens::sign_in::freshness::{CLOCK_SKEW, Freshness, SignInRequest};
use crate::tokens::sign_in::place::SignInPlace;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// The parameter that says that the browser comes back from the login page.
const RETURNED: &str = "returned";

impl AuthorizationCall<'_, '_> {
    /// The live session of this browser, if it is as new as the client wants.
    pub(super) async fn session(
        &self,
        headers: &HeaderMap,
        pending: &PendingRequest,
    ) -> Result<Option<Family>, Reject> {
        let place = sign_in_place(&pending.client_id, &self.call.endpoints.clients, self.settings);
        let sessions = self.sessions(place, headers).await?;
        Ok(sessions.into_iter().find(|family| self.is_new_enough(family, pending)))
    }

    /// The live sessions of this browser from this place. There is one, unless another site has set a cookie.
    pub(super) async fn sessions(&self, place: &SignInPlace, headers: &HeaderMap) -> Result<Vec<Family>, Reject> {
        match place {
            SignInPlace::Providers(providers) => self.sessions_at(providers, headers).await,
            SignInPlace::LoginPage(_) => Ok(self.captured_login(headers).await?.into_iter().collect()),
        }
    }

    async fn sessions_at(&self, providers: &[Arc<str>], headers: &HeaderMap) -> Result<Vec<Family>, Reject> {
        let found = self.sign_in()?.sessions(headers, self.call.context).await?;
        let at_these = found.into_iter().filter(|(_, login)| providers.iter().any(|name| **name == *login.provider));
        Ok(at_these.map(|(family, _)| family).collect())
    }

    /// The session of `login = "cookie"`, by both cookies, as for a refresh. A spent refresh token is no proof: a thief
    /// may have it. Nor is a refresh token alone, because nothing here would show that it was stolen.
    ///
    /// Only a whole login of a user counts. A session of a client, an exchanged token or one for a narrow audience must
    /// not grant more than itself, and one that is bound to a key or a certificate needs that, which no browser shows.
    async fn captured_login(&self, headers: &HeaderMap) -> Result<Option<Family>, Reject> {
        let presented = login_cookies::refresh_token(headers).and_then(PresentedToken::parse);
        let Some(presented) = presented else { return Ok(None) };
        let access = login_cookies::access_token(headers);
        let access =
            access.and_then(|text| BearerToken::from_text(text, self.call.checks().authenticator.token_size).ok());
        let Some(access) = access else { return Ok(None) };
        let token = match self.call.checks().expired_cookie(access, self.call.context).await {
            Ok(token) => token,
            Err(reject) if reject.reason.status() == StatusCode::UNAUTHORIZED => return Ok(None),
            Err(reject) => return Err(reject),
        };
        if token.family != Some(presented.token_id) {
            return Ok(None);
        }
        let found = self.call.broker.session_of_token(&presented, self.call.context.now).await?;
        Ok(found.filter(is_whole_login))
    }

    fn is_new_enough(&self, family: &Family, pending: &PendingRequest) -> bool {
        let begun_at = pending.begun_at();
        // The date of a login is earlier than its time by what the clocks can be wrong.
        let is_after_request = family.created_at + self.call.context.clock.uncertainty() >= begun_at;
        // By the clock of the provider, if that has said it: the user may have been signed in there for long.
        let authenticated = UnixTime::from_secs(auth_time(family));
        let skew = if is_after_request { CLOCK_SKEW } else { Duration::ZERO };
        match pending.request.sign_in {
            SignInWish::Any | SignInWish::Silent => true,
            SignInWish::Anew => is_after_request && authenticated + skew >= begun_at,
            SignInWish::Within(seconds) => authenticated + Duration::from_secs(seconds) + skew >= begun_at,
        }
    }

    /// Sends the browser to the place where the user signs in. It comes back to `target`, a path and a query. `wanted`:
    /// what the client wants of the sign-in.
    pub(super) async fn begin_sign_in<B>(
        &self,
        place: &SignInPlace,
        target: &str,
        wanted: &SignInRequest,
        request: &Request<B>,
    ) -> Result<Response<Body>, Reject> {
        match place {
            SignInPlace::Providers(providers) => self.begin_at(providers, target, wanted, request).await,
            SignInPlace::LoginPage(page) => self.to_login_page(page, target, wanted, request),
        }
    }

    /// Sends the browser to the only provider, or lets the user choose one.
    ///
    /// If the browser has a session, a new one ends it. Another site must not cause that without the user: the page has
    /// a link to itself.
    async fn begin_at<B>(
        &self,
        providers: &[Arc<str>],
        target: &str,
        wanted: &SignInRequest,
        request: &Request<B>,
    ) -> Result<Response<Body>, Reject> {
        let headers = request.headers();
        let sign_in = self.sign_in()?;
        if is_of_other_site(headers) && !sign_in.sessions(headers, self.call.context).await?.is_empty() {
            return Ok(pages::sign_in_again(target));
        }
        if let [provider] = providers {
            return sign_in.start_with(provider, target, wanted, request, self.call.context);
        }
        let wanted = wanted.parameters();
        let link = |provider: &str| {
            let path = sign_in.path_of(paths::SIGN_IN, provider);
            let wanted = wanted.iter().map(|(name, value)| (*name, &**value));
            format!("{path}?{}", parameters::write([("return", target)].into_iter().chain(wanted)))
        };
        let links: Vec<_> = providers.iter().map(|provider| (&**provider, link(provider))).collect();
        Ok(pages::providers(&links))
    }

    /// A page that sends the browser back without a session would do so for ever.
    fn to_login_page<B>(
        &self,
        page: &str,
        target: &str,
        wanted: &SignInRequest,
        request: &Request<B>,
    ) -> Result<Response<Body>, Reject> {
        let query = parameters::read(request.uri().query().unwrap_or_default());
        if query.is_ok_and(|query| query.contains_key(RETURNED)) {
            let detail = "oauth.login_page has sent the browser back, and it has no session of login = \"cookie\" that \
                          is as new as the client wants";
            return Err(Reject::new(Reason::NotSignedIn, detail));
        }
        redirect(&format!("{}{}", metadata::base(self.call.issuer()), login_page(page, target, wanted)))
    }

    /// Where another user can sign in. `target`: where the browser comes back to.
    pub(super) fn other_user(&self, target: &str) -> Result<pages::OtherUser, Reject> {
        match &self.settings.sign_in {
            SignInPlace::Providers(_) => Ok(pages::OtherUser::SignOut(self.sign_in()?.path(paths::SIGN_OUT))),
            SignInPlace::LoginPage(page) => {
                let anew = SignInRequest { freshness: Freshness::Anew, ..SignInRequest::default() };
                Ok(pages::OtherUser::SignIn(login_page(page, target, &anew)))
            }
        }
    }

    fn sign_in(&self) -> Result<&SignIn, Reject> {
        self.sign_in.ok_or_else(|| Reject::new(Reason::Internal, "there is no [sign_in]"))
    }
}

fn is_whole_login(family: &Family) -> bool {
    family.client_id.is_empty()
        && family.origin.is_none()
        && family.audience.is_empty()
        && family.bound_to() == Bound::default()
}

/// The login page, with where the browser comes back to. If the client wants a new session, a user who is signed in
/// signs in again.
fn login_page(page: &str, target: &str, wanted: &SignInRequest) -> String {
    let separator = if target.contains('?') { '&' } else { '?' };
    let target = format!("{target}{separator}{RETURNED}=1");
    let prompt = if wanted.freshness == Freshness::Any { None } else { Some(("prompt", "login")) };
    let more: Vec<(&str, &str)> = prompt.into_iter().chain(wanted.hints.parameters()).collect();
    format!("{page}?{}", parameters::write([("return", &*target)].into_iter().chain(more)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::sign_in::hints::SignInHints;

    #[test]
    fn the_login_page_learns_where_the_browser_comes_back_to() {
        let hints = SignInHints::of(&[("login_hint".to_owned(), "a@b".to_owned())].into());
        let any = SignInRequest { freshness: Freshness::Any, hints };
        let anew = SignInRequest { freshness: Freshness::Within(5), ..SignInRequest::default() };
        for (target, wanted, expected) in [
            ("/oauth/grants", &any, "/login?return=%2Foauth%2Fgrants%3Freturned%3D1&login_hint=a%40b"),
            (
                "/oauth/consent?request=a",
                &anew,
                "/login?return=%2Foauth%2Fconsent%3Frequest%3Da%26returned%3D1&prompt=login",
            ),
        ] {
            assert_eq!(login_page("/login", target, wanted), expected);
        }
    }
}
