//! Whether tokens can be accepted while other gateways may have revoked some.

use crate::store::Freshness;
use crate::types::reject::{Reason, Reject};

/// Rejects every token while revocations may be missing here. After the look-up: a process that was stopped in between
/// learns from the clock how old its answer is.
pub(super) fn check_freshness(freshness: Option<&Freshness>, serves_stale: Option<bool>) -> Result<(), Reject> {
    match freshness {
        Some(freshness) if freshness.is_stale() && !serves_stale.unwrap_or(freshness.serves_stale) => {
            let age = freshness.age().as_secs();
            Err(Reject::new(Reason::RevocationsStale, format!("the revocations are those of {age}s ago")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stale_revocations_reject_tokens_unless_they_are_served() {
        let of = |freshness: Option<&Freshness>, serves_stale| {
            check_freshness(freshness, serves_stale).err().map(|reject| reject.reason)
        };
        let stale = Some(Reason::RevocationsStale);
        for (of_store, of_route, expected) in [
            (false, None, stale),
            (false, Some(false), stale),
            (false, Some(true), None),
            (true, None, None),
            (true, Some(false), stale),
            (true, Some(true), None),
        ] {
            let freshness = Freshness::new(Duration::from_secs(10), of_store, false);
            assert_eq!(of(Some(&freshness), of_route), expected, "{of_store} {of_route:?}");
            freshness.completed(crate::types::boot_time::BootTime::now(), false);
            assert_eq!(of(Some(&freshness), of_route), None, "{of_store} {of_route:?}");
        }
        assert_eq!(of(None, Some(false)), None, "this gateway is alone");
    }
}
