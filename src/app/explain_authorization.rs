//! `bearward explain` about a request of the authorization endpoint: what the configuration decides, and the documents
//! of clients that a running gateway has.

use std::sync::Arc;

use http::HeaderMap;

use super::root_secrets::read_existing_roots;
use crate::auth::client_documents::ClientDocuments;
use crate::config::Config;
use crate::gateway::authorization_server::{NoPreview, Preview, check_page};
use crate::gateway::context::RequestContext;
use crate::gateway::endpoints::Endpoints;
use crate::tokens::family::refresh_token::Roots;
use crate::types::reject::{Reason, Reject};

pub(super) struct AuthorizationQuestions {
    endpoints: Endpoints,
    issuer: String,
    roots: Arc<Roots>,
    documents: Arc<ClientDocuments>,
}

impl AuthorizationQuestions {
    /// Without a running gateway.
    pub(super) fn of_files(config: &Config) -> Self {
        let roots = read_existing_roots(&config.store.secret).unwrap_or_else(|_| Roots::none());
        AuthorizationQuestions::new(config, Arc::new(roots), Arc::default())
    }

    pub(super) fn new(config: &Config, roots: Arc<Roots>, documents: Arc<ClientDocuments>) -> Self {
        let issuer = config.tokens.issuer.clone();
        AuthorizationQuestions { endpoints: config.oauth.clone(), issuer, roots, documents }
    }

    /// The consent page, and the page of grants.
    pub(super) fn check_page(&self, headers: &HeaderMap, context: &RequestContext<'_>) -> Result<(), Reject> {
        check_page(context.host(), &self.issuer, headers)
    }

    /// The text completes the sentence "the gateway itself …".
    pub(super) fn answer(&self, context: &RequestContext<'_>) -> Result<String, NoPreview> {
        let settings = self.endpoints.authorization.as_deref();
        let settings = settings.ok_or(Reject::from(Reason::NoRoute))?;
        let preview = Preview {
            settings,
            clients: &self.endpoints.clients,
            denied: &self.endpoints.denied,
            issuer: &self.issuer,
            roots: &self.roots,
            documents: &self.documents,
        };
        preview.of(context)
    }
}
