//! `[issuer.introspection]`: how to ask about its tokens.

use std::time::Duration;

use crate::auth::oauth_client::{Endpoint, OAuthClient};
use crate::tokens::jwt::introspected::AnswerRules;

#[derive(Clone, Debug, PartialEq)]
pub struct IntrospectionSettings {
    /// `endpoint`
    pub endpoint: Endpoint,
    pub client: OAuthClient,
    /// `token_prefix`. Empty: every opaque token with no prefix of another issuer.
    pub token_prefixes: Vec<String>,
    /// `cache`: how long requests use an answer.
    pub cache: Duration,
    /// `concurrency`: questions in flight.
    pub concurrency: usize,
    /// `consecutive_timeouts`
    pub consecutive_timeouts: usize,
    pub response: AnswerForm,
    pub rules: AnswerRules,
    /// The issuer also has a source of keys: its JWTs are verified with them, and the endpoint is not asked.
    pub verifies_jwts: bool,
}

/// `response`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// RFC 7662
    Json,
    /// RFC 9701. Unsigned answers are rejected.
    Jwt,
}

impl IntrospectionSettings {
    /// Returns true if a question of one is as the same question of the other.
    pub fn is_asked_as(&self, other: &IntrospectionSettings) -> bool {
        (&self.endpoint, &self.client, self.response) == (&other.endpoint, &other.client, other.response)
            && self.token_prefixes == other.token_prefixes
    }

    /// How long an answer holds for streams, and for a token that replaces this one: questions begin before the cache
    /// ends, and a backend needs some time with a replacement.
    pub fn answer_lifetime(&self) -> Duration {
        2 * self.cache
    }
}
