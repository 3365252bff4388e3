//! What a known client asks for, with the checks in their order: for the gateway, and for `bearward explain`.

use super::clients::AskingClient;
use super::parameters::Parameters;
use super::pushed;
use super::settings::AuthorizationSettings;
use crate::tokens::authorization::pushed::PushedRequest;
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::request::{AuthorizationRequest, RequestError};
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::reject::Reject;

/// The request of a client with a redirect URI that it has registered.
pub(super) struct Asked<'c> {
    pub(super) client: AskingClient<'c>,
    pub(super) redirect_uri: RedirectUri,
    pub(super) wish: Wish,
}

pub(super) enum Wish {
    /// The browser brings the request.
    Here(AuthorizationRequest),
    /// The client has pushed it.
    Pushed(PushedRequest),
    /// The client learns at its redirect URI what is wrong with it, if it may.
    Wrong(RequestError),
}

/// What this client asks for. Until its redirect URI is known to be registered, an error is a rejection.
pub(super) fn asked_by<'c>(
    client: AskingClient<'c>,
    parameters: &Parameters,
    settings: &AuthorizationSettings,
    roots: &Roots,
    now: UnixTime,
) -> Result<Asked<'c>, Reject> {
    if let Some(request_uri) = parameters.get("request_uri") {
        let pushed = pushed::open(request_uri, client.id, roots, now)?;
        let redirect_uri = client.redirect_of(pushed.request.redirect_uri.as_str())?;
        return Ok(Asked { client, redirect_uri, wish: Wish::Pushed(pushed) });
    }
    let redirect_uri = client.redirect_of(parameters.required("redirect_uri")?)?;
    let wish = match parameters.asked_by_browser(&client, &redirect_uri, settings) {
        Ok(request) => Wish::Here(request),
        Err(error) => Wish::Wrong(error),
    };
    Ok(Asked { client, redirect_uri, wish })
}
