//! The gateway as a client of the token endpoint of another server (RFC 8693): the token of a caller becomes a token
//! for a backend.
//!
//! Concurrent requests with the same token share one exchange, and a token that the server has rejected is not sent
//! again for some seconds. Without a new token there is no request to the backend: the token of the caller is never
//! passed on in its place.

mod counts;
mod failure;
mod response;

use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;

use self::failure::Failure;
use self::response::ACCESS_TOKEN;
use crate::auth::exchanged_tokens::ExchangedToken;
use crate::auth::flights::{Flights, flight_key};
use crate::auth::oauth_client::{CircuitBreaker, Endpoint, OAuthClient, OAuthClientError, OAuthResponse};
use crate::auth::recently_rejected::RejectedTokens;
use crate::auth::token_cache::CachedToken;
use crate::telemetry::outage::{Outage, OutageChange};
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::{Reason, Reject, with_causes};
use crate::types::secret;

pub use counts::ExchangeCounts;

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// `[[token_exchange]]`
#[derive(Clone, Debug, PartialEq)]
pub struct TokenExchangeSettings {
    pub name: String,
    pub endpoint: Endpoint,
    pub client: OAuthClient,
    pub audience: Vec<String>,
    pub resource: Option<String>,
    pub scopes: Vec<String>,
    /// The server gets a token of this gateway for this audience, and not the token of the caller. Empty: the caller's.
    pub subject_audience: Vec<String>,
    /// `consecutive_timeouts`
    pub consecutive_timeouts: usize,
}

impl TokenExchangeSettings {
    /// Returns true if an exchange of one is as the same exchange of the other.
    pub fn is_asked_as(&self, other: &TokenExchangeSettings) -> bool {
        let wanted = |settings: &Self| (settings.audience.clone(), settings.resource.clone(), settings.scopes.clone());
        (&self.endpoint, &self.client) == (&other.endpoint, &other.client) && wanted(self) == wanted(other)
    }

    /// Asks the server to exchange an invented token. Fails if the answer is not about that token.
    pub async fn probe(&self, clock: &dyn Clock) -> Result<(), String> {
        let invented = format!("{:032x}", u128::from_be_bytes(secret::random()));
        match self.post(&invented, clock.now()).await {
            Ok(response) => response::check_probe(&response),
            Err(error) => Err(with_causes(&error)),
        }
    }

    async fn post(&self, subject: &str, now: UnixTime) -> Result<OAuthResponse, OAuthClientError> {
        let mut fields = vec![
            ("grant_type", GRANT_TYPE),
            ("subject_token", subject),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ACCESS_TOKEN),
        ];
        fields.extend(self.audience.iter().map(|audience| ("audience", audience.as_str())));
        fields.extend(self.resource.iter().map(|resource| ("resource", resource.as_str())));
        let scope = self.scopes.join(" ");
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        self.client.post(&self.endpoint, &fields, now).await
    }
}

/// One `[[token_exchange]]` and its exchanges in flight.
pub struct TokenExchange {
    pub settings: TokenExchangeSettings,
    /// Its place in the configuration.
    number: usize,
    /// `limits.token_size`
    token_size: usize,
    flights: Flights<Result<ExchangedToken, Failure>>,
    rejected: RejectedTokens<Failure>,
    breaker: CircuitBreaker,
    outage: Outage,
    counts: Arc<ExchangeCounts>,
}

impl TokenExchange {
    pub fn new(number: usize, settings: TokenExchangeSettings, token_size: usize, counts: Arc<ExchangeCounts>) -> Self {
        let breaker = CircuitBreaker::new(settings.consecutive_timeouts);
        let flights = Flights::default();
        let rejected = RejectedTokens::default();
        let outage = Outage::default();
        TokenExchange { settings, number, token_size, flights, rejected, breaker, outage, counts }
    }

    /// The `Authorization` header for the backend, if it is known.
    pub fn known(&self, caller: &CachedToken, now: UnixTime) -> Option<HeaderValue> {
        caller.exchanged.find(self.number, now)
    }

    /// The `Authorization` header for the backend. `subject`: the token that the server exchanges.
    pub async fn authorization(
        &self,
        caller: &CachedToken,
        subject: &str,
        clock: &dyn Clock,
    ) -> Result<HeaderValue, Reject> {
        let key = flight_key("", &caller.text);
        let seat = self.flights.join(key);
        let mut outcome = seat.flight.lock().await;
        if outcome.is_none() {
            // Another request may have ended its exchange before this one joined.
            if let Some(known) = self.known(caller, clock.now()) {
                return Ok(known);
            }
            if let Some(failure) = self.rejected.find(key, clock.uptime()) {
                return Err(failure.reject(&self.settings.name));
            }
            let asked = self.ask(subject, clock).await;
            self.counts.count(&asked);
            self.note(asked.as_ref().err());
            if let Err(failure @ Failure::Failed(_)) = &asked {
                self.rejected.insert(key, failure.clone(), clock.uptime());
            }
            *outcome = Some(asked);
            seat.close();
        }
        match &*outcome {
            Some(Ok(token)) => {
                caller.exchanged.add(self.number, token.clone());
                Ok(token.authorization().clone())
            }
            Some(Err(failure)) => Err(failure.reject(&self.settings.name)),
            None => Err(Reject::new(Reason::Internal, "an exchange without an outcome")),
        }
    }

    async fn ask(&self, subject: &str, clock: &dyn Clock) -> Result<ExchangedToken, Failure> {
        let call = self.breaker.begin().ok_or(Failure::Skipped)?;
        // Read before the question: the lifetime in the response counts from when it was made.
        let asked = clock.now();
        let response = self.settings.post(subject, asked).await;
        call.end(response.as_ref().is_err_and(OAuthClientError::is_timeout));
        match response {
            Ok(response) => {
                let (authorization, lifetime) = response::read(&response, self.token_size)?;
                Ok(ExchangedToken::new(authorization, lifetime, asked))
            }
            Err(error) => Err(Failure::Unavailable(with_causes(&error))),
        }
    }

    /// A server that rejects a token works.
    fn note(&self, failure: Option<&Failure>) {
        let error = match failure {
            Some(Failure::Unavailable(why)) => why,
            Some(Failure::Skipped) => return,
            Some(Failure::Failed(_)) | None => "",
        };
        let exchange = &*self.settings.name;
        let url = &self.settings.endpoint.url;
        match self.outage.note(error, Instant::now()) {
            Some(OutageChange::Failed { others }) => tracing::error!(
                exchange,
                %url,
                error,
                other_changes = others,
                "cannot exchange tokens: requests that need a new one get 503"
            ),
            Some(OutageChange::Ended) => tracing::info!(exchange, %url, "the server exchanges tokens again"),
            None => {}
        }
    }
}
