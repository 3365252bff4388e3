//! One introspection endpoint, and the questions to it.

use std::borrow::Cow;
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::{self, Answer, Unanswered};
use super::counts::{IntrospectionCounts, Outcome};
use super::settings::{AnswerForm, IntrospectionSettings};
use crate::auth::flights::flight_key;
use crate::auth::keyring::Keyring;
use crate::auth::oauth_client::{CircuitBreaker, OAuthResponse};
use crate::telemetry::outage::{Outage, OutageChange};
use crate::tokens::jwt::introspected::{ANSWER_TYPE, accept, is_about_another, read_signed_answer};
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::tokens::jwt::{Issuer, VerifiedToken};
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;
use crate::types::step::StepReporter;

/// Maximum questions of streams at the same time.
const STREAM_QUESTIONS: usize = 16;

pub struct Introspector {
    pub policy: Arc<Issuer>,
    pub settings: IntrospectionSettings,
    in_flight: Semaphore,
    /// Questions of streams. Those of other issuers do not wait for this endpoint.
    pub(super) of_streams: Semaphore,
    breaker: CircuitBreaker,
    outage: Outage,
}

/// A token about which the endpoint said that it is active.
pub struct Introspected {
    pub token: Arc<VerifiedToken>,
    /// Before the question, so that the way of the answer makes no token live longer.
    pub asked_at: UnixTime,
    /// The same, by a clock that cannot be set.
    pub asked: Instant,
}

impl Introspector {
    pub(super) fn new(policy: Issuer, settings: IntrospectionSettings) -> Self {
        let in_flight = Semaphore::new(settings.concurrency);
        let of_streams = Semaphore::new(STREAM_QUESTIONS);
        let breaker = CircuitBreaker::new(settings.consecutive_timeouts);
        Introspector { policy: Arc::new(policy), settings, in_flight, of_streams, breaker, outage: Outage::default() }
    }

    /// The issuer is a part of it: two issuers can have issued the same text (GHSA-4mq7-pvjg-xp2r).
    pub fn token_key(&self, text: &str) -> u128 {
        flight_key(&self.policy.issuer, text)
    }

    /// Asks about a token, and judges the answer. [`Reason::IntrospectionUnavailable`] means that nothing is known
    /// about the token.
    pub async fn ask(
        &self,
        text: &str,
        keyring: &Keyring,
        clock: &dyn Clock,
        counts: &IntrospectionCounts,
    ) -> Result<Introspected, Reject> {
        // Waits no longer than the question may take. The permit is not returned before the answer is complete.
        let Ok(Ok(_permit)) = timeout(self.settings.client.time_limit, self.in_flight.acquire()).await else {
            counts.count(Outcome::Busy);
            let busy = format!("{} questions to the introspection endpoint are in flight", self.settings.concurrency);
            return Err(Reject::new(Reason::IntrospectionUnavailable, busy));
        };
        let Some(call) = self.breaker.begin() else {
            counts.count(Outcome::Skipped);
            let hangs = "the introspection endpoint did not respond in time to the last questions";
            return Err(Reject::new(Reason::IntrospectionUnavailable, hangs));
        };
        let asked_at = clock.now();
        let started = Instant::now();
        let answer = self.question(text, keyring, clock).await;
        call.end(matches!(&answer, Err(Unanswered::TimedOut(_))));
        let outcome = match &answer {
            Ok(Answer::Active(_)) => Outcome::Active,
            Ok(Answer::Inactive) => Outcome::Inactive,
            Err(_) => Outcome::Failed,
        };
        counts.took(outcome, started.elapsed());
        self.note(answer.as_ref().err());
        match answer {
            Ok(Answer::Active(claims)) => {
                let token =
                    accept(claims, &self.policy, self.settings.rules, asked_at, self.settings.answer_lifetime())?;
                Ok(Introspected { token: Arc::new(token), asked_at, asked: started })
            }
            Ok(Answer::Inactive) => {
                Err(Reject::new(Reason::TokenInactive, "the introspection endpoint says that it is not active"))
            }
            Err(unanswered) => Err(Reject::new(Reason::IntrospectionUnavailable, unanswered.why().to_owned())),
        }
    }

    /// Asks about an invented token. Counts nothing. Fails if the endpoint gives no answer, or calls the token active.
    pub async fn probe(&self, keyring: &Keyring, clock: &dyn Clock) -> Result<(), String> {
        let prefix = self.settings.token_prefixes.first().map_or("", String::as_str);
        let invented = format!("{prefix}{:032x}", u128::from_be_bytes(secret::random()));
        match self.question(&invented, keyring, clock).await {
            Ok(Answer::Inactive) => Ok(()),
            Ok(Answer::Active(_)) => Err("the endpoint says that an invented token is active".to_owned()),
            Err(unanswered) => Err(unanswered.why().to_owned()),
        }
    }

    async fn question(&self, text: &str, keyring: &Keyring, clock: &dyn Clock) -> Result<Answer, Unanswered> {
        let media_type = match self.settings.response {
            AnswerForm::Json => "application/json",
            AnswerForm::Jwt => "application/token-introspection+jwt",
        };
        let fields = [("token", text), ("token_type_hint", "access_token")];
        let client = &self.settings.client;
        let endpoint = &self.settings.endpoint;
        let response = client.post_accepting(media_type, endpoint, &fields, clock.now()).await?;
        let answer = match self.settings.response {
            AnswerForm::Json => answer::unsigned(&response)?,
            AnswerForm::Jwt => self.signed(&response, keyring, clock).await?,
        };
        match answer {
            Answer::Active(claims) if is_about_another(&claims, text) => {
                Err(Unanswered::Unusable("the answer has the `jti` of another token".into()))
            }
            answer => Ok(answer),
        }
    }

    /// RFC 9701. An unsigned answer is none, or an attacker in between would leave the signature out.
    async fn signed(
        &self,
        response: &OAuthResponse,
        keyring: &Keyring,
        clock: &dyn Clock,
    ) -> Result<Answer, Unanswered> {
        answer::check_status(response)?;
        if response.media_type.strip_prefix("application/") != Some(ANSWER_TYPE) {
            return Err(Unanswered::Unusable("the answer is not signed, and response is \"jwt\"".into()));
        }
        let text = str::from_utf8(&response.body);
        let text = text.map_err(|_| Unanswered::Unusable("the signed answer is not text".into()))?;
        let text = text.trim_ascii_end();
        let issuer = || Some(Cow::Borrowed(&*self.policy.issuer));
        let read = move || ready(self.read_signed(text, keyring, clock));
        let answer = keyring.verify_with_new_keys(issuer, clock, read).await?;
        answer::of_object(answer)
    }

    fn read_signed(
        &self,
        text: &str,
        keyring: &Keyring,
        clock: &dyn Clock,
    ) -> Result<serde_json::Map<String, serde_json::Value>, Reject> {
        let keys = keyring.keys();
        let ours = |issuer: &&TrustedIssuer| issuer.policy.issuer == self.policy.issuer;
        let issuer = keys.issuers.iter().find(ours).ok_or(Reason::KeysUnavailable)?;
        read_signed_answer(text, issuer, &self.settings.client.client_id, clock.now(), StepReporter::OFF)
    }

    fn note(&self, error: Option<&Unanswered>) {
        let error = error.map_or("", Unanswered::why);
        let issuer = &self.policy.issuer;
        let url = &self.settings.endpoint.url;
        match self.outage.note(error, Instant::now()) {
            Some(OutageChange::Failed { others }) => tracing::error!(
                %issuer,
                %url,
                error,
                other_changes = others,
                "cannot ask about opaque tokens: they get 503"
            ),
            Some(OutageChange::Ended) => tracing::info!(%issuer, %url, "the introspection endpoint answers again"),
            None => {}
        }
    }
}
