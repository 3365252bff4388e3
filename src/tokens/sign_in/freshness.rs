//! How new the authentication of a user must be for a client that asks: `prompt=login` and `max_age` (OpenID Connect
//! Core section 3.1.2.1). The user can remove the parameter from the URL of the request, and the provider can ignore
//! it, so the ID token must confirm it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hints::SignInHints;
use crate::types::clock::UnixTime;

/// Between the provider's clock and ours.
pub const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// How new the authentication at the provider must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    #[default]
    Any,
    /// `prompt=login`: of this attempt.
    Anew,
    /// `max_age`: at most this number of seconds before this attempt.
    Within(u64),
}

impl Freshness {
    /// The parameter that asks the provider for it.
    pub fn parameter(self) -> Option<(&'static str, String)> {
        match self {
            Freshness::Any => None,
            Freshness::Anew => Some(("prompt", "login".to_owned())),
            Freshness::Within(seconds) => Some(("max_age", seconds.to_string())),
        }
    }

    /// Of the link to a sign-in, which has the same parameters.
    pub fn of_link(query: &BTreeMap<String, String>) -> Self {
        if query.get("prompt").is_some_and(|prompt| prompt == "login") {
            return Freshness::Anew;
        }
        let max_age = query.get("max_age").and_then(|seconds| seconds.parse().ok());
        max_age.map_or(Freshness::Any, Freshness::Within)
    }

    /// `begun_at`: when the attempt began.
    pub fn since(self, begun_at: UnixTime) -> Option<AuthenticatedSince> {
        match self {
            Freshness::Any => None,
            Freshness::Anew => Some(AuthenticatedSince { time: begun_at, is_said: false }),
            Freshness::Within(seconds) => {
                Some(AuthenticatedSince { time: begun_at - Duration::from_secs(seconds), is_said: true })
            }
        }
    }
}

/// What a client wants of the sign-in of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignInRequest {
    pub freshness: Freshness,
    pub hints: SignInHints,
}

impl SignInRequest {
    /// Of the link to a sign-in.
    pub fn of_link(query: &BTreeMap<String, String>) -> Self {
        SignInRequest { freshness: Freshness::of_link(query), hints: SignInHints::of(query) }
    }

    /// The parameters that the provider gets, and that a link has.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let hints = self.hints.parameters().map(|(name, value)| (name, value.to_owned()));
        self.freshness.parameter().into_iter().chain(hints).collect()
    }
}

/// The earliest authentication that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticatedSince {
    pub time: UnixTime,
    /// If true, the ID token must say when it was: the provider was asked for `max_age`. With `prompt=login` alone, a
    /// provider may leave it out.
    pub is_said: bool,
}

impl AuthenticatedSince {
    /// `auth_time`: of the ID token, in seconds.
    pub(super) fn check(self, auth_time: Option<u64>) -> Result<(), &'static str> {
        match auth_time {
            Some(time) if UnixTime::from_secs(time) + CLOCK_SKEW >= self.time => Ok(()),
            Some(_) => Err("the user signed in at the provider earlier than the client accepts"),
            None if self.is_said => Err("auth_time is missing, and the client has asked for max_age"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_asks_for_what_the_client_asks() {
        for freshness in [Freshness::Any, Freshness::Anew, Freshness::Within(30)] {
            let query = freshness.parameter().map(|(name, value)| (name.to_owned(), value));
            assert_eq!(Freshness::of_link(&query.into_iter().collect()), freshness);
        }
        let unknown = [("prompt", "none"), ("max_age", "-1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(Freshness::of_link(&unknown.into()), Freshness::Any);
    }

    #[test]
    fn an_old_authentication_or_an_unknown_one_is_not_new() {
        let begun_at = UnixTime::from_secs(1_000);
        assert_eq!(Freshness::Any.since(begun_at), None);
        let check =
            |freshness: Freshness, auth_time| freshness.since(begun_at).is_some_and(|it| it.check(auth_time).is_ok());
        for (freshness, auth_time, is_new) in [
            (Freshness::Anew, Some(1_010), true),
            (Freshness::Anew, Some(940), true),
            (Freshness::Anew, Some(939), false),
            (Freshness::Anew, None, true),
            (Freshness::Within(30), Some(910), true),
            (Freshness::Within(30), Some(909), false),
            (Freshness::Within(30), None, false),
        ] {
            assert_eq!(check(freshness, auth_time), is_new, "{freshness:?} {auth_time:?}");
        }
    }
}
