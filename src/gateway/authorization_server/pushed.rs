//! The endpoint for pushed authorization requests (RFC 9126): a client sends its request itself, before the browser
//! does. No one changes or reads it on the way, and the client learns at once what is wrong with it.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;

use super::call::AuthorizationCall;
use super::parameters::Parameters;
use crate::gateway::oauth::{Call, Form};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::authorization::pushed::{LIFETIME, PushedRequest};
use crate::tokens::authorization::request::RequestError;
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

/// Checks the request of a client, and gives it a `request_uri` for the browser. `content`: the form.
pub async fn push(call: Call<'_, '_>, content: &Bytes) -> Result<Response<Body>, Reject> {
    let settings = call.endpoints.authorization.as_deref().ok_or(Reason::NoRoute)?;
    let form = Form::read(call.headers, content)?;
    call.endpoints.denied.check(form.get("client_id").unwrap_or_default(), &call.broker.roots)?;
    let client = call.client(&form).await?.client;
    let client_id = client.id().ok_or_else(|| Reject::new(Reason::BadForm, "client_id is missing"))?;
    // Used up at this process alone: nothing is granted, and a call of a stranger must write nothing.
    let proof = call.authenticator.proof_verifier.grant_proof(&call.context.auth_by(call.headers)).await?;
    let mut asking = AuthorizationCall::of(call, settings, None);
    asking.push(content, client_id, client.method().is_some(), proof.bound.key).await
}

impl AuthorizationCall<'_, '_> {
    /// `key`: that of a DPoP proof.
    ///
    /// A client with a key in its document must use it here as well.
    async fn push(
        &mut self,
        content: &Bytes,
        client_id: &str,
        is_authenticated: bool,
        key: Option<Thumbprint>,
    ) -> Result<Response<Body>, Reject> {
        let text = str::from_utf8(content).unwrap_or_default();
        let parameters = Parameters::of_text(text).map_err(|wrong| Reject::new(Reason::BadForm, wrong))?;
        if parameters.get("request_uri").is_some() {
            return Err(Reject::new(Reason::BadForm, "request_uri in a pushed request"));
        }
        let client = self.client(client_id).await.map_err(unknown_client)?;
        if client.authenticates && !is_authenticated {
            return Err(Reject::new(Reason::ClientNotAuthenticated, "the document of the client names a key"));
        }
        let redirect_uri = client.redirect_of(parameters.required("redirect_uri")?)?;
        let mut request = parameters.asked(&client, &redirect_uri, self.settings).map_err(rejected)?;
        request.dpop_jkt = bound_key(request.dpop_jkt, key)?;
        let uri = PushedRequest::new(client.id, request, self.call.context.now).seal(&self.call.broker.roots);
        let uri =
            uri.ok_or_else(|| Reject::new(Reason::BadForm, "state, redirect_uri, resource and scope are too long"))?;
        let answer = json!({ "request_uri": uri, "expires_in": LIFETIME.as_secs() });
        Ok(respond::json(StatusCode::CREATED, &answer))
    }
}

/// The request of this client, within 90 seconds.
pub(super) fn open(request_uri: &str, client_id: &str, roots: &Roots, now: UnixTime) -> Result<PushedRequest, Reject> {
    let bad = |detail: &'static str| Reject::new(Reason::BadAuthorization, detail);
    let pushed = PushedRequest::open(request_uri, roots);
    let pushed = pushed.ok_or_else(|| bad("request_uri is not one that this gateway has given"))?;
    if pushed.client_id != client_id {
        return Err(bad("request_uri was given to another client"));
    }
    if !pushed.is_current(now) {
        return Err(bad("request_uri is older than 90 seconds"));
    }
    Ok(pushed)
}

/// RFC 9449 section 10.1: a proof binds the code as `dpop_jkt` does.
fn bound_key(wanted: Option<String>, proved: Option<Thumbprint>) -> Result<Option<String>, Reject> {
    let proved = proved.map(|key| key.to_string());
    match (wanted, proved) {
        (Some(wanted), Some(proved)) if wanted != proved => {
            Err(Reject::new(Reason::ProofRejected, "dpop_jkt is not the key of the proof"))
        }
        (wanted, proved) => Ok(wanted.or(proved)),
    }
}

/// RFC 6749 section 5.2.
fn unknown_client(reject: Reject) -> Reject {
    if reject.reason != Reason::UnknownClient {
        return reject;
    }
    Reject::new(Reason::ClientAuthentication, reject.detail).described("this client is not known here".to_owned())
}

/// What the browser would bring to the redirect URI.
fn rejected(error: RequestError) -> Reject {
    let reason = match error.code {
        "invalid_scope" => Reason::InvalidScope,
        "invalid_target" => Reason::InvalidTarget,
        "unsupported_response_type" => Reason::UnsupportedResponseType,
        "request_not_supported" => Reason::RequestObject,
        _ => Reason::BadForm,
    };
    Reject::new(reason, format!("{}: {}", error.code, error.description)).described(error.description.to_owned())
}
