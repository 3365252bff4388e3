//! The decision of the user, and the answer to the client.

use bytes::Bytes;
use http::header::ORIGIN;
use http::{Request, Response};

use super::call::AuthorizationCall;
use crate::gateway::oauth::{Form, metadata};
use crate::protocols::http::body::Body;
use crate::tokens::authorization::request::RequestError;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// `POST` of the consent page. The order of the checks: the page of this host sent the form, the browser began the
    /// request, and the user is the one that the page names.
    pub(super) async fn decide<B>(&mut self, request: &Request<B>, form: &Bytes) -> Result<Response<Body>, Reject> {
        self.check_host()?;
        self.check_origin(request)?;
        let form = Form::read(request.headers(), form)?;
        let sealed = form.required("request")?;
        let pending = self.pending(sealed, request.headers())?;
        let session = self.session(request.headers(), &pending).await?;
        let ended = || Reject::new(Reason::ConsentStale, "the session of the user has ended meanwhile");
        let session = session.ok_or_else(ended)?;
        let client = self.client_of(&pending).await?;
        // Another user has signed in since the page was made.
        if form.required("session")? != session.id.to_string() {
            return Ok(self.page(&client, &pending, sealed, &session));
        }
        match form.required("decision")? {
            "allow" => self.allow(&pending, &session),
            _ => {
                let denied = RequestError::new("access_denied", "the user has declined");
                let response = self.answer_error(&pending, denied).await?;
                self.context.record.rejected = Some(Reason::ConsentDenied.into());
                Ok(response)
            }
        }
    }

    /// A form of another site has the cookies of the user as well.
    fn check_origin<B>(&self, request: &Request<B>) -> Result<(), Reject> {
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let is_own = origins.next().is_some_and(|origin| *origin == *metadata::base(self.issuer));
        if !is_own || origins.next().is_some() {
            return Err(Reject::new(Reason::Csrf, "Origin is not that of tokens.issuer"));
        }
        let site = request.headers().get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin") {
            return Err(Reject::new(Reason::Csrf, "Sec-Fetch-Site is not same-origin"));
        }
        Ok(())
    }
}
