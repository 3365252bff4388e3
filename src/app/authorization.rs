//! What all workers share of clients that ask users: their documents, and what came of their requests.

use std::sync::Arc;

use crate::auth::client_documents::ClientDocuments;
use crate::gateway::authorization_counts::AuthorizationCounts;
use crate::telemetry::metrics::Metrics;

/// Outlives a reload.
#[derive(Default)]
pub(super) struct AuthorizationState {
    /// Of `oauth.client_documents`.
    pub(super) documents: Arc<ClientDocuments>,
    pub(super) counts: Arc<AuthorizationCounts>,
}

impl AuthorizationState {
    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let counts = self.counts.clone();
        let help = "Requests at the authorization endpoint, by outcome and by how the gateway knows the client";
        metrics.counters("authorizations", help, move || counts.authorizations());
        let counts = self.counts.clone();
        let help = "Decisions about requests of clients, by outcome";
        metrics.counters("consents", help, move || counts.consents());
        let counts = self.counts.clone();
        let help = "Authorization codes at the token endpoint, by outcome";
        metrics.counters("codes", help, move || counts.codes());
        let counts = self.counts.clone();
        let help = "Clients that have registered themselves, or tried to, by outcome";
        metrics.counters("registrations", help, move || counts.registrations());
        let documents = self.documents.clone();
        let help = "Requests of clients with a document at their URL, by what came of the document";
        metrics.counters("client_documents", help, move || documents.counts.labelled());
        let documents = self.documents.clone();
        let help = "Seconds from the request for a document of a client until its response";
        metrics.histograms("client_document_seconds", help, move || documents.counts.durations());
    }
}
