//! The tokens of other servers that stand for one token of a client, kept until shortly before they expire.
//!
//! They are in the cache entry of the client's token, so that they end with it: with its expiry, with a revocation, and
//! with a reload.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderValue;

use crate::types::clock::UnixTime;

/// A token is not used in the last part of its life, so that the backend gets it in time.
const MARGIN: Duration = Duration::from_secs(30);

/// The tokens of one client's token, one for each `[[token_exchange]]`.
#[derive(Debug, Default)]
pub struct ExchangedTokens {
    cached: ArcSwapOption<Vec<(usize, ExchangedToken)>>,
}

/// What a backend gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangedToken {
    authorization: HeaderValue,
    /// The token is used from here on: if the clock was set back, its expiry would be too late.
    from: UnixTime,
    /// Until then it is used.
    until: UnixTime,
}

impl ExchangedToken {
    /// `authorization`: with the scheme. `lifetime`: as the server says.
    pub fn new(authorization: HeaderValue, lifetime: Duration, now: UnixTime) -> Self {
        let until = now + (lifetime - MARGIN.min(lifetime / 4));
        // Requests of other workers may have read the clock a moment earlier.
        ExchangedToken { authorization, from: now - Duration::from_secs(1), until }
    }

    pub fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }
}

impl ExchangedTokens {
    /// The token of the exchange with this number. `None` if there is none, or it expires soon.
    pub fn find(&self, exchange: usize, now: UnixTime) -> Option<HeaderValue> {
        let cached = self.cached.load();
        let is_wanted = |(number, token): &&(usize, ExchangedToken)| {
            *number == exchange && (token.from..token.until).contains(&now)
        };
        cached.as_deref()?.iter().find(is_wanted).map(|(_, token)| token.authorization.clone())
    }

    /// Of two requests that add a token at the same time, one overwrites the other. That costs one more exchange later.
    pub fn add(&self, exchange: usize, token: ExchangedToken) {
        let cached = self.cached.load();
        let others = cached.iter().flat_map(|cached| cached.iter()).filter(|(number, _)| *number != exchange).cloned();
        self.cached.store(Some(Arc::new(others.chain([(exchange, token)]).collect())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn token(text: &'static str, lifetime: Duration) -> ExchangedToken {
        ExchangedToken::new(HeaderValue::from_static(text), lifetime, NOW)
    }

    #[test]
    fn a_token_is_used_until_shortly_before_it_expires() {
        for (lifetime, used) in [(300, 270), (120, 90), (60, 45), (4, 3), (0, 0)] {
            let tokens = ExchangedTokens::default();
            tokens.add(0, token("Bearer a", lifetime * SECOND));
            let at = |time| tokens.find(0, time).is_some();
            let end = NOW + used * SECOND;
            assert_eq!((at(NOW), at(end)), (used > 0, false), "{lifetime}");
            assert!(at(end - Duration::from_millis(1)), "{lifetime}");
            assert!(!at(NOW - 2 * SECOND), "the clock was set back");
        }
    }

    #[test]
    fn each_exchange_has_its_own_token() {
        let tokens = ExchangedTokens::default();
        for (exchange, text) in [(0, "Bearer a"), (1, "Bearer b"), (0, "Bearer c")] {
            tokens.add(exchange, token(text, 300 * SECOND));
        }
        let found = |exchange| tokens.find(exchange, NOW).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!([found(0), found(1), found(2)], [Some("Bearer c".into()), Some("Bearer b".into()), None]);
    }
}
