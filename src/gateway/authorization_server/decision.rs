//! The decision of the user, and the answer to the client.

use bytes::Bytes;
use http::{Request, Response};

use super::call::AuthorizationCall;
use super::consent::field_of;
use crate::gateway::authorization_counts::Consent;
use crate::gateway::oauth::Form;
use crate::protocols::http::body::Body;
use crate::tokens::authorization::request::RequestError;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// `POST` of the consent page. The order of the checks: the page of this host sent the form, the browser began the
    /// request, and the user is the one that the page names.
    pub(super) async fn decide<B>(&mut self, request: &Request<B>, form: &Bytes) -> Result<Response<Body>, Reject> {
        self.check_page(request.headers())?;
        self.check_origin(request.headers())?;
        let form = Form::read(request.headers(), form)?;
        let sealed = form.required("request")?;
        let pending = self.pending(sealed, request.headers())?;
        let session = self.session(request.headers(), &pending).await?;
        let ended = || Reject::new(Reason::ConsentStale, "the session of the user has ended meanwhile");
        let session = session.ok_or_else(ended)?;
        let client = self.client_of(&pending).await?;
        // Another user has signed in since the page was made.
        if form.required("session")? != session.id.to_string() {
            return self.page(&client, &pending, sealed, &session).await;
        }
        match form.required("decision")? {
            "allow" => {
                let mut scopes = self.grantable(&client, &pending, &session);
                // Those that the page has shown, and the user has not left out. More may be possible since.
                scopes.retain(|name| form.get(&field_of(name)).is_some());
                self.allow(&pending, &session, &scopes, client.grantee(), Consent::Allowed)
            }
            _ => {
                let event = self.call.context.event();
                self.call.broker.record_denial(&pending, &session, event).await?;
                let denied = RequestError::new("access_denied", "the user has declined");
                let response = self.answer_error(&pending, denied).await?;
                self.call.context.record.rejected = Some(Reason::ConsentDenied.into());
                Ok(response)
            }
        }
    }
}
