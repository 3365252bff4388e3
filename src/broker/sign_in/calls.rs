//! The calls of sign-ins and refreshes to providers: they are counted, and while an endpoint hangs, all but one at a
//! time fail at once. Otherwise, each login of a dead provider would hold a request of the other routes' limit for
//! seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::oauth_client::{CircuitBreaker, OAuthClientError, OAuthResponse};
use crate::telemetry::metrics::LabelledValue;
use crate::telemetry::outage::Outage;

/// What is asked of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProviderCall {
    Code,
    Refresh,
    UserInfo,
    Revocation,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallOutcome {
    Good,
    /// The provider says that it is the fault of the request.
    Rejected,
    /// There was no response, or the provider has a failure.
    Failed,
    /// The provider did not respond to the last ones, and was not asked.
    Skipped,
}

/// Shared by all workers, and outlives a reload. Its size is bounded by the configuration.
#[derive(Default)]
pub struct CallCounts {
    calls: Mutex<Calls>,
    /// Sign-ins without the refresh token that was asked for.
    without_refresh_token: Mutex<BTreeMap<Arc<str>, u64>>,
}

/// By the name of the provider, what was asked, and what came of it.
type Calls = BTreeMap<(Arc<str>, ProviderCall, CallOutcome), u64>;

/// One for each endpoint of a provider: a response of one says nothing of another.
#[derive(Debug)]
pub struct Breakers {
    token: CircuitBreaker,
    userinfo: CircuitBreaker,
    revocation: CircuitBreaker,
    /// In the same order.
    outages: [Outage; 3],
}

impl ProviderCall {
    const ALL: [ProviderCall; 4] =
        [ProviderCall::Code, ProviderCall::Refresh, ProviderCall::UserInfo, ProviderCall::Revocation];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            ProviderCall::Code => "code",
            ProviderCall::Refresh => "refresh",
            ProviderCall::UserInfo => "userinfo",
            ProviderCall::Revocation => "revocation",
        }
    }
}

impl CallOutcome {
    const ALL: [CallOutcome; 4] = [CallOutcome::Good, CallOutcome::Rejected, CallOutcome::Failed, CallOutcome::Skipped];

    const fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Good => "good",
            CallOutcome::Rejected => "rejected",
            CallOutcome::Failed => "failed",
            CallOutcome::Skipped => "skipped",
        }
    }

    pub(super) fn of(response: &Result<OAuthResponse, OAuthClientError>) -> Self {
        match response.as_ref().map(|response| response.status) {
            Ok(status) if status.is_success() => CallOutcome::Good,
            Ok(status) if status.is_client_error() => CallOutcome::Rejected,
            Ok(_) | Err(_) => CallOutcome::Failed,
        }
    }
}

impl CallCounts {
    /// Shows this provider in the metrics before its first call: a rise from nothing is none for Prometheus.
    pub fn expect(&self, provider: &Arc<str>) {
        self.without_refresh_token.lock().entry(provider.clone()).or_default();
        let mut counts = self.calls.lock();
        for call in ProviderCall::ALL {
            for outcome in CallOutcome::ALL {
                counts.entry((provider.clone(), call, outcome)).or_default();
            }
        }
    }

    pub(super) fn count(&self, provider: &Arc<str>, call: ProviderCall, outcome: CallOutcome) {
        *self.calls.lock().entry((provider.clone(), call, outcome)).or_default() += 1;
    }

    pub(super) fn count_without_refresh_token(&self, provider: &Arc<str>) {
        *self.without_refresh_token.lock().entry(provider.clone()).or_default() += 1;
    }

    pub fn labelled(&self) -> Vec<LabelledValue> {
        let labelled = |((provider, call, outcome), count): (&(Arc<str>, ProviderCall, CallOutcome), &u64)| {
            let labels = vec![
                ("provider", provider.to_string()),
                ("call", call.as_str().to_owned()),
                ("outcome", outcome.as_str().to_owned()),
            ];
            (labels, *count as f64)
        };
        self.calls.lock().iter().map(labelled).collect()
    }

    pub fn labelled_without_refresh_token(&self) -> Vec<LabelledValue> {
        let labelled = |(provider, count): (&Arc<str>, &u64)| (vec![("provider", provider.to_string())], *count as f64);
        self.without_refresh_token.lock().iter().map(labelled).collect()
    }
}

impl Breakers {
    /// `limit`: `provider.consecutive_timeouts`
    pub fn new(limit: usize) -> Self {
        let [token, userinfo, revocation] = [(); 3].map(|()| CircuitBreaker::new(limit));
        Breakers { token, userinfo, revocation, outages: Default::default() }
    }

    pub(super) fn outage_of(&self, call: ProviderCall) -> &Outage {
        let [token, userinfo, revocation] = &self.outages;
        match call {
            ProviderCall::Code | ProviderCall::Refresh => token,
            ProviderCall::UserInfo => userinfo,
            ProviderCall::Revocation => revocation,
        }
    }

    pub(super) fn of(&self, call: ProviderCall) -> &CircuitBreaker {
        match call {
            ProviderCall::Code | ProviderCall::Refresh => &self.token,
            ProviderCall::UserInfo => &self.userinfo,
            ProviderCall::Revocation => &self.revocation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_hang_apart_from_each_other() {
        let breakers = Breakers::new(1);
        breakers.of(ProviderCall::Code).begin().expect("closed").end(true);
        let trial = breakers.of(ProviderCall::Refresh).begin().expect("one may try");
        assert!(breakers.of(ProviderCall::Code).begin().is_none(), "both are at the token endpoint");
        for other in [ProviderCall::UserInfo, ProviderCall::Revocation] {
            let both = [breakers.of(other).begin(), breakers.of(other).begin()];
            assert!(both.iter().all(Option::is_some));
        }
        trial.end(false);
        assert!(breakers.of(ProviderCall::Code).begin().is_some());
    }

    #[test]
    fn each_outcome_is_shown_before_the_first_call() {
        let counts = CallCounts::default();
        let name = Arc::from("main");
        counts.expect(&name);
        counts.count(&name, ProviderCall::Code, CallOutcome::Skipped);
        let labelled = counts.labelled();
        let counted: Vec<_> = labelled.iter().filter(|(_, count)| *count > 0.0).collect();
        assert_eq!((labelled.len(), counted.len()), (16, 1));
        assert_eq!(counted[0].0[2], ("outcome", "skipped".to_owned()));
    }
}
