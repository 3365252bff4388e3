//! The messages about revocations that are too old: the reason, and what happens to requests.

use std::fmt;
use std::time::Duration;

use crate::store::error::FailureKind;

/// Why no poll of the log counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaleCause {
    Store(FailureKind),
    /// Those of the newest poll are not in force.
    SigningKeys,
    /// With `store.strict`: the other gateways do not wait for this one.
    Unacknowledged,
}

/// Its text names no server, user or file: a probe has no token.
pub(super) struct Staleness {
    /// `None`: nothing failed that is known.
    pub(super) cause: Option<StaleCause>,
    /// The time since the last complete poll; [`Duration::MAX`]: there was none.
    pub(super) age: Duration,
    /// `store.max_staleness`
    pub(super) limit: Duration,
    /// `store.on_stale` is "serve".
    pub(super) serves_stale: bool,
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Staleness { cause, age, limit, serves_stale } = self;
        match cause {
            Some(StaleCause::Store(kind)) => write!(f, "the store does not answer ({}): ", kind.as_str())?,
            Some(StaleCause::SigningKeys) => f.write_str("the signing keys of the store cannot be read: ")?,
            Some(StaleCause::Unacknowledged) => f.write_str("the store does not know that this gateway lives: ")?,
            None => {}
        }
        if *age == Duration::MAX {
            return f.write_str("the revocations were not read yet");
        }
        let half = *limit / 2;
        write!(f, "the revocations are those of {age:.1?} ago, half of store.max_staleness is {half:.1?}; ")?;
        match (serves_stale, age > limit) {
            (true, _) => f.write_str("requests with tokens are served nevertheless (store.on_stale)"),
            (false, true) => write!(f, "requests with tokens get 503, because that is more than {limit:.1?}"),
            (false, false) => write!(f, "from {limit:.1?} on, requests with tokens get 503"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_the_cause_and_what_happens_to_requests() {
        let of = |cause, age, serves_stale| {
            let age = Duration::from_secs(age);
            Staleness { cause, age, limit: Duration::from_secs(10), serves_stale }.to_string()
        };
        let unreachable = Some(StaleCause::Store(FailureKind::Unreachable));
        assert_eq!(
            of(unreachable, 8, false),
            "the store does not answer (the server cannot be reached): the revocations are those of 8.0s ago, half of \
             store.max_staleness is 5.0s; from 10.0s on, requests with tokens get 503"
        );
        for (age, serves_stale, effect) in [
            (12, false, "; requests with tokens get 503, because that is more than 10.0s"),
            (12, true, "; requests with tokens are served nevertheless (store.on_stale)"),
        ] {
            let said = of(None, age, serves_stale);
            assert!(said.starts_with("the revocations are those of 12.0s ago") && said.ends_with(effect), "{said}");
        }
        for (cause, says) in [
            (StaleCause::SigningKeys, "the signing keys of the store cannot be read: the revocations are"),
            (StaleCause::Unacknowledged, "the store does not know that this gateway lives: the revocations are"),
        ] {
            let said = of(Some(cause), 8, false);
            assert!(said.starts_with(says), "{said}");
        }
    }
}
