//! The back of a request: the form in which the decision leaves the gateway.

use http::{Request, Response};

use crate::gateway::context::RequestContext;
use crate::gateway::decide::Decision;
use crate::gateway::forward::Forwarder;
use crate::gateway::forward_auth::{ForwardAuth, Wire, envoy};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond::RejectFormat;
use crate::types::reject::{Reason, Reject};

/// Who gets the response to a request.
#[derive(Clone, Copy)]
pub(super) enum Back<'g> {
    /// The client, also through a trusted proxy. `format`: in which it reads a rejection.
    Client { format: RejectFormat },
    /// A proxy that has asked. It forwards the request itself.
    Proxy { by: &'g ForwardAuth, wire: Wire, format: RejectFormat },
}

impl Back<'_> {
    pub(super) fn format(self) -> RejectFormat {
        match self {
            Back::Client { format } | Back::Proxy { format, .. } => format,
        }
    }

    /// Returns true for an answer by which a proxy forwards the request. `rejected`: why the request was rejected.
    pub(super) fn lets_pass(self, rejected: Option<Reason>) -> bool {
        matches!(self, Back::Proxy { .. }) && rejected.is_none()
    }

    /// Returns the answer to a proxy that carries the decision out itself. `None`: the gateway carries it out.
    pub(super) async fn answer(
        self,
        decision: &Decision,
        forwarder: &Forwarder,
        request: &mut Request<Body>,
        context: &RequestContext<'_>,
    ) -> Result<Option<Response<Body>>, Reject> {
        match self {
            Back::Client { .. } => Ok(None),
            // Boxed because it is rare.
            Back::Proxy { by, wire, .. } => {
                Box::pin(by.answer(wire, decision, forwarder, request, context)).await.map(Some)
            }
        }
    }

    /// The response in the dialect of a proxy. `rejected`: why the request was rejected.
    pub(super) async fn encode(self, response: &mut Response<Body>, rejected: Option<Reason>) {
        match self {
            Back::Client { .. } | Back::Proxy { wire: Wire::Http | Wire::Unexpected, .. } => {}
            Back::Proxy { wire: Wire::Envoy, .. } => {
                let decided = std::mem::replace(response, Response::new(Body::empty()));
                *response = Box::pin(envoy::encode(decided, rejected)).await;
            }
        }
    }
}
