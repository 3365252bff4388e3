//! The sign-out: the session ends here at once, with its streams, and the browser goes to the provider to end it there.

use http::header::SET_COOKIE;
use http::{Request, Response, StatusCode};
use serde_json::json;

use super::service::{SignIn, presented};
use super::{pages, paths};
use crate::auth::bearer::session_cookie;
use crate::gateway::context::RequestContext;
use crate::gateway::csrf::{self, CsrfRequest};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::types::reject::{Reason, Reject};

impl SignIn {
    /// `POST {path}/sign_out`, from a page of this host.
    pub(super) async fn sign_out<B>(
        &self,
        request: &Request<B>,
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let origin = self.own_origin(context)?.to_owned();
        let host = context.record.host.clone().ok_or(Reason::BadHost)?;
        let target = CsrfRequest {
            method: request.method(),
            websocket: false,
            logout: true,
            host: &host,
            scheme: &context.source.forwarded_client().scheme,
        };
        csrf::check(request.headers(), &target, &[])?;
        // Not before: a page of another site must not use up the calls of its readers.
        self.broker.throttle.count_call(context.client())?;
        let back = format!("{origin}{}", self.path(paths::SIGNED_OUT));
        let mut url = None;
        for presented in presented(request.headers()) {
            // A store that does not respond is a rejection: the session is still alive.
            if let Some(ended) = self.broker.sign_out(&presented, context.event()).await? {
                context.record.token_id = Some(ended.family.id);
                url = url.or(ended.url(&self.providers, &back));
            }
        }
        let url = url.unwrap_or(back);
        let is_script = request.headers().get("sec-fetch-mode").is_some_and(|mode| mode != "navigate");
        let mut response = if is_script {
            // It cannot follow a redirect to another site.
            respond::json(StatusCode::OK, &json!({ "success": true, "logout_url": url }))
        } else {
            let redirect = pages::redirect(StatusCode::SEE_OTHER, &url);
            redirect.ok_or_else(|| Reject::new(Reason::Internal, "the target is no header"))?
        };
        let cleared = [session_cookie::clear(session_cookie::SESSION), session_cookie::clear(session_cookie::STARTS)];
        response.headers_mut().extend(cleared.into_iter().flatten().map(|cookie| (SET_COOKIE, cookie)));
        Ok(response)
    }
}
