//! What the record of a request says about an OAuth client that asks a user, or that redeems its code.

use super::field::cut;
use super::redact::without_tokens;

/// Never the code, the verifier, the state, or a sealed request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuthRequest {
    /// How the access log names the client: by the name that the operator has given it, or by a host.
    pub client: Option<String>,
    /// As the client sent it, also if there is no such client.
    pub client_id: Option<String>,
    pub redirect_uri: Option<String>,
    /// Separated by spaces.
    pub resource: Option<String>,
}

impl OAuthRequest {
    /// Keeps for `bearward explain` what the client asks for, as it sent it.
    pub fn ask<'r>(
        &mut self,
        client_id: Option<&str>,
        redirect_uri: Option<&str>,
        resources: impl Iterator<Item = &'r str>,
    ) {
        let resources: Vec<&str> = resources.filter(|resource| !resource.is_empty()).collect();
        self.client_id = client_id.map(str::to_owned);
        self.redirect_uri = redirect_uri.map(str::to_owned);
        self.resource = if resources.is_empty() { None } else { Some(resources.join(" ")) };
    }

    /// Each text with at most `max` bytes, and without tokens.
    pub(in crate::telemetry) fn cut(&self, max: usize) -> Self {
        let short = |text: &Option<String>| text.as_ref().map(|text| cut(&without_tokens(text), max).into_owned());
        OAuthRequest {
            client: short(&self.client),
            client_id: short(&self.client_id),
            redirect_uri: short(&self.redirect_uri),
            resource: short(&self.resource),
        }
    }
}
