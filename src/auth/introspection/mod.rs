//! Opaque tokens: the gateway asks their issuer about them (RFC 7662).
//!
//! Which issuer is asked is decided by the token alone, before anything is sent: by the `iss` of what looks like a JWT,
//! or by a prefix. No token is shown to one issuer after the other. Tokens of this gateway are shown to none.
//!
//! The answer is cached, and not what followed from it: audience and claims of the issuer's section are judged once for
//! each answer, time, revocations, scopes and rules on every request (CVE-2021-32701). Without an answer there is no
//! request: an answer that has become too old is not used, also while the endpoint does not respond.

mod answer;
mod counts;
mod introspector;
mod settings;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::auth::bearer::BearerToken;
use crate::auth::introspected_tokens::{Answer, IntrospectedToken, IntrospectedTokens, StreamQuestion};
use crate::auth::keyring::Keyring;
use crate::auth::recently_rejected::RejectedTokens;
use crate::tokens::credential_kind::begins_as_own;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::introspected::looks_like_jwt;
use crate::tokens::jwt::verify::unverified_issuer;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

pub use counts::IntrospectionCounts;
pub use introspector::{Introspected, Introspector};
pub use settings::{AnswerForm, IntrospectionSettings};

/// The issuers of one configuration that are asked. A reload makes a new one, which knows no answer of before.
#[derive(Default)]
pub struct Introspection {
    introspectors: Vec<Arc<Introspector>>,
    rejected: RejectedTokens<Reason>,
    pub introspected_tokens: Arc<IntrospectedTokens>,
    pub counts: Arc<IntrospectionCounts>,
}

impl Introspection {
    pub fn new(
        issuers: impl Iterator<Item = (Issuer, IntrospectionSettings)>,
        introspected_tokens: Arc<IntrospectedTokens>,
        counts: Arc<IntrospectionCounts>,
    ) -> Self {
        let introspectors = issuers.map(|(policy, settings)| Arc::new(Introspector::new(policy, settings))).collect();
        Introspection { introspectors, introspected_tokens, counts, ..Introspection::default() }
    }

    pub fn introspectors(&self) -> &[Arc<Introspector>] {
        &self.introspectors
    }

    /// Who is asked about this token. `None`: it is not opaque, or no issuer has such tokens.
    pub(super) fn target(&self, bearer: BearerToken<'_>) -> Option<&Arc<Introspector>> {
        if self.introspectors.is_empty() { None } else { self.target_of(bearer.text().ok()?) }
    }

    fn target_of(&self, text: &str) -> Option<&Arc<Introspector>> {
        if begins_as_own(text) {
            return None;
        }
        if looks_like_jwt(text) {
            let issuer = unverified_issuer(text)?;
            let asked = self.introspectors.iter().filter(|asked| !asked.settings.verifies_jwts);
            return asked.into_iter().find(|asked| *asked.policy.issuer == *issuer);
        }
        let prefixes = |asked: &Introspector| asked.settings.token_prefixes.iter().any(|one| text.starts_with(one));
        let by_prefix = self.introspectors.iter().find(|asked| prefixes(asked));
        by_prefix.or_else(|| self.introspectors.iter().find(|asked| asked.settings.token_prefixes.is_empty()))
    }

    pub(super) fn rejected(&self, token: u128, clock: &dyn Clock) -> Option<Reason> {
        self.rejected.find(token, clock.uptime())
    }

    /// Notes an answer that makes the token good.
    pub(super) fn good(
        &self,
        asked: &Introspector,
        key: u128,
        text: &Arc<str>,
        introspected: &Introspected,
    ) -> Arc<IntrospectedToken> {
        let Introspected { token, asked_at, asked: began } = introspected;
        let due = *asked_at + asked.settings.cache / 2;
        let answer = Answer { token: token.clone(), asked: *began, due };
        self.introspected_tokens.record(key, text, answer)
    }

    /// Notes an answer that makes the token bad. Without an answer, nothing changes.
    pub(super) fn bad(&self, token: u128, reject: &Reject, clock: &dyn Clock) {
        if reject.reason != Reason::IntrospectionUnavailable {
            self.rejected.insert(token, reject.reason, clock.uptime());
            self.introspected_tokens.end(token);
        }
    }

    /// Begins the questions that are due about tokens with open streams. Each is a task of its own, so that an endpoint
    /// that hangs ends no streams of another issuer. Without an answer, a stream goes on until its token ends.
    pub fn ask_for_streams(self: &Arc<Self>, tasks: &mut JoinSet<()>, keyring: &Arc<Keyring>, clock: &Arc<dyn Clock>) {
        for question in self.introspected_tokens.due(clock.now()) {
            let this = self.clone();
            let keyring = keyring.clone();
            let clock = clock.clone();
            tasks.spawn(async move { this.ask_for_stream(&question, &keyring, &*clock).await });
        }
    }

    async fn ask_for_stream(&self, question: &StreamQuestion, keyring: &Keyring, clock: &dyn Clock) {
        // An issuer that is gone ends its streams: see gateway/streams/basis.rs.
        let Some(asked) = self.target_of(&question.text) else { return };
        // After a reload, the token may be one of another issuer.
        if asked.token_key(&question.text) != question.token {
            return self.introspected_tokens.end(question.token);
        }
        // Never closed.
        let _turn = asked.of_streams.acquire().await;
        let now = clock.now();
        // Boxed: those that wait for their turn need no room for a call.
        match Box::pin(asked.ask(&question.text, keyring, clock, &self.counts)).await {
            Ok(introspected) => {
                self.good(asked, question.token, &question.text, &introspected);
            }
            Err(reject) if reject.reason == Reason::IntrospectionUnavailable => {
                question.postpone(now + asked.settings.cache / 8);
            }
            Err(reject) => self.bad(question.token, &reject, clock),
        }
    }
}
