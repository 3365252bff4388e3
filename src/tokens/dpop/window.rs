//! The time in which a proof is good: `iat`, and `exp` and `nbf` if the client sets them (RFC 9449 section 4.3).

use serde_json::{Map, Value};

use crate::tokens::jwt::json::optional_date;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Maximum age of a proof in seconds. A proof is made for one request, so this is time for a slow network and a wrong
/// clock.
pub const MAX_AGE: u64 = 60;

/// How many seconds the clock of a client may be ahead.
pub const MAX_AHEAD: u64 = 5;

/// Returns `iat` in whole seconds, if the proof is good now. The client sees by how much its clock differs, because
/// wrong clocks are the most frequent fault of honest clients.
pub(super) fn check(claims: &Map<String, Value>, now: UnixTime) -> Result<u64, Reject> {
    let issued = optional_date(claims, "iat").map_err(|error| malformed(error.to_string()))?;
    let issued = issued.ok_or_else(|| malformed("iat is missing".into()))?.as_secs();
    let now_secs = now.as_secs();
    if now_secs > issued + MAX_AGE {
        return Err(late(format!("the proof is {} s old, at most {MAX_AGE} s", now_secs - issued)));
    }
    if issued > now_secs + MAX_AHEAD {
        return Err(late(format!("the proof is dated {} s ahead, at most {MAX_AHEAD} s", issued - now_secs)));
    }
    check_end(claims, now)?;
    Ok(issued)
}

/// Checks `exp` and `nbf`, and that `iat` is a date, for a proof with a nonce.
pub(super) fn check_end(claims: &Map<String, Value>, now: UnixTime) -> Result<(), Reject> {
    let date = |name| optional_date(claims, name).map_err(|error| malformed(error.to_string()));
    date("iat")?.ok_or_else(|| malformed("iat is missing".into()))?;
    if date("exp")?.is_some_and(|end| now >= end) {
        return Err(late("the exp of the proof has passed".into()));
    }
    if date("nbf")?.is_some_and(|begin| begin.as_secs() > now.as_secs() + MAX_AHEAD) {
        return Err(late("the nbf of the proof is ahead".into()));
    }
    Ok(())
}

fn late(text: String) -> Reject {
    Reject::new(Reason::ProofTime, text.clone()).described(text)
}

fn malformed(detail: String) -> Reject {
    Reject::new(Reason::ProofMalformed, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_proof_is_good_for_a_minute_and_five_seconds_ahead() {
        let now = UnixTime::from_millis(1_000_000_700);
        let good = None;
        let late = Some(Reason::ProofTime);
        let malformed = Some(Reason::ProofMalformed);
        for (claims, expected) in [
            (json!({ "iat": 1_000_000 }), good),
            (json!({ "iat": 1_000_000.9 }), good),
            (json!({ "iat": 999_940 }), good),
            (json!({ "iat": 999_939 }), late),
            (json!({ "iat": 1_000_005 }), good),
            (json!({ "iat": 1_000_006 }), late),
            (json!({}), malformed),
            (json!({ "iat": "1000000" }), malformed),
            (json!({ "iat": null }), malformed),
            (json!({ "iat": -1 }), malformed),
            (json!({ "iat": 1e300 }), malformed),
            (json!({ "iat": 1_000_000, "exp": 1_000_001 }), good),
            (json!({ "iat": 1_000_000, "exp": 1_000_000 }), late),
            (json!({ "iat": 1_000_000, "exp": "never" }), malformed),
            (json!({ "iat": 1_000_000, "nbf": 1_000_005 }), good),
            (json!({ "iat": 1_000_000, "nbf": 1_000_006 }), late),
        ] {
            let found = check(claims.as_object().expect("an object"), now).err().map(|reject| reject.reason);
            assert_eq!(found, expected, "{claims}");
        }
    }
}
