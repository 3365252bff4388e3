//! Sign-in at a provider by OpenID Connect (authorization code with PKCE): the rules, without I/O.
//!
//! An [`attempt`] lives in a sealed cookie until the provider sends the browser back. The response of the token
//! endpoint is read by [`token_response`], its ID token checked by [`id_token`] after the signature, and its claims by
//! [`rules`]. The store keeps what [`provider_tokens`] seals, with the [`known_claims`].

pub mod attempt;
mod broken_json;
pub mod freshness;
pub mod hints;
pub mod id_token;
pub mod known_claims;
pub mod place;
pub mod provider_tokens;
pub mod rules;
pub mod token_response;
