//! The page of grants: a user sees which clients may act, and ends that.

use bytes::Bytes;
use http::{Request, Response};

use super::call::{AuthorizationCall, redirect};
use super::pages;
use crate::gateway::oauth::{Form, metadata};
use crate::protocols::http::body::Body;
use crate::store::RevokedBy;
use crate::tokens::authorization::request::SignInWish;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// `GET`: the grants of the user of this browser, who signs in first.
    pub(super) async fn show_grants<B>(&mut self, request: &Request<B>) -> Result<Response<Body>, Reject> {
        self.check_host()?;
        self.check_navigation(request.headers())?;
        let user = self.sessions(request.headers()).await?.into_iter().next();
        let Some(user) = user else {
            return self.begin_sign_in(&self.settings.grants_page, SignInWish::Any, request).await;
        };
        let grants = self.broker.grants_of(&user.subject, self.context.now).await?;
        Ok(pages::grants(&grants, &self.settings.grants_page))
    }

    /// `POST`: ends one grant, with its streams, on all gateways.
    pub(super) async fn end_grant<B>(&mut self, request: &Request<B>, form: &Bytes) -> Result<Response<Body>, Reject> {
        self.check_host()?;
        self.check_navigation(request.headers())?;
        self.check_origin(request.headers())?;
        let form = Form::read(request.headers(), form)?;
        let user = self.sessions(request.headers()).await?.into_iter().next();
        let user = user.ok_or_else(|| Reject::new(Reason::ConsentStale, "the session of the user has ended"))?;
        let unknown = || Reject::new(Reason::TokenNotFound, "this is no grant of the user");
        let id = TokenId::parse(form.required("grant")?).ok_or_else(unknown)?;
        let grant = self.broker.grant(id, &user.subject, self.context.now).await?.ok_or_else(unknown)?;
        self.context.record.token_id = Some(grant.id);
        let by = RevokedBy::Owner(user.subject);
        self.broker.revoke_family(grant.id, by, self.context.event()).await?;
        redirect(&format!("{}{}", metadata::base(self.issuer), self.settings.grants_page))
    }
}
