//! The page of grants: a user sees which clients may act, and ends that.

use bytes::Bytes;
use http::{Request, Response};

use super::call::{AuthorizationCall, redirect};
use super::clients::{Described, KnownBy, find};
use super::pages::{self, ShownGrant};
use crate::gateway::oauth::{Form, metadata};
use crate::protocols::http::body::Body;
use crate::store::RevokedBy;
use crate::tokens::authorization::{client_document, client_registration};
use crate::tokens::family::Family;
use crate::tokens::sign_in::freshness::SignInRequest;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// `GET`: the grants of the user of this browser, who signs in first.
    pub(super) async fn show_grants<B>(&mut self, request: &Request<B>) -> Result<Response<Body>, Reject> {
        self.check_page(request.headers())?;
        let user = self.sessions(&self.settings.sign_in, request.headers()).await?.into_iter().next();
        let Some(user) = user else {
            let place = &self.settings.sign_in;
            return self.begin_sign_in(place, &self.settings.grants_page, &SignInRequest::default(), request).await;
        };
        let grants = self.call.broker.grants_of(&user.subject, self.call.context.now).await?;
        let shown: Vec<ShownGrant> = grants.into_iter().map(|session| self.shown(session)).collect();
        Ok(pages::grants(&shown, &self.settings.grants_page))
    }

    /// A client as the user knows it from the consent page. It needs no fetch.
    fn shown(&self, session: Family) -> ShownGrant {
        let id = &session.client_id;
        match find(id, &self.call.endpoints.clients, self.settings, &self.call.broker.roots, self.call.context.now) {
            Described::Here(client) => {
                let redirect_uris = client.redirect_uris.to_vec();
                ShownGrant { known_by: Some(client.known_by), redirect_uris, session }
            }
            Described::AtItsUrl(_) | Described::Nowhere => {
                let known_by = match client_document::host_of(id) {
                    Ok(host) => Some(KnownBy::Document { host: host.to_owned(), is_named: false, name: None }),
                    Err(_) if id.starts_with(client_registration::PREFIX) => Some(KnownBy::Itself { name: None }),
                    Err(_) => None,
                };
                ShownGrant { known_by, redirect_uris: Vec::new(), session }
            }
        }
    }

    /// `POST`: ends one grant, with its streams, on all gateways.
    pub(super) async fn end_grant<B>(&mut self, request: &Request<B>, form: &Bytes) -> Result<Response<Body>, Reject> {
        self.check_page(request.headers())?;
        self.check_origin(request.headers())?;
        let form = Form::read(request.headers(), form)?;
        let user = self.sessions(&self.settings.sign_in, request.headers()).await?.into_iter().next();
        let user = user.ok_or_else(|| Reject::new(Reason::ConsentStale, "the session of the user has ended"))?;
        let unknown = || Reject::new(Reason::TokenNotFound, "this is no grant of the user");
        let id = TokenId::parse(form.required("grant")?).ok_or_else(unknown)?;
        let grant = self.call.broker.grant(id, &user.subject, self.call.context.now).await?.ok_or_else(unknown)?;
        self.call.context.record.token_id = Some(grant.id);
        let by = RevokedBy::Owner(user.subject);
        self.call.broker.revoke_family(grant.id, by, self.call.context.event()).await?;
        redirect(&format!("{}{}", metadata::base(self.call.issuer()), self.settings.grants_page))
    }
}
