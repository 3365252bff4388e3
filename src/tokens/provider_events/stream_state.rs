//! The `state` of a verification that the gateway requests (SSF section 8.1.4.2).
//!
//! It is a MAC over the name of the stream and the time, so that the event may arrive at another gateway with the same
//! root secrets, and so that nothing has to be remembered.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::claims::CLOCK_SKEW;
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::secret::{self, Secret};

const TIME: usize = 8;
const MAC: usize = 16;

/// `None` without root secrets.
pub fn new(stream: &str, roots: &Roots, now: UnixTime) -> Option<String> {
    let number = roots.newest();
    let time = now.as_secs().to_be_bytes();
    let mac = mac(roots.newest_secret()?, stream, number, &time);
    Some(URL_SAFE_NO_PAD.encode([&[number][..], &time, &mac].concat()))
}

/// Returns true if a gateway with these root secrets chose the state for this stream, at most `max_age` ago.
pub fn is_own(state: &str, stream: &str, roots: &Roots, now: UnixTime, max_age: Duration) -> bool {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(state) else { return false };
    let Some((number, rest)) = bytes.split_first() else { return false };
    let Some((time, presented)) = rest.split_first_chunk::<TIME>() else { return false };
    let Some(root) = roots.find(*number) else { return false };
    let chosen = UnixTime::from_secs(u64::from_be_bytes(*time));
    secret::equal(presented, &mac(root, stream, *number, time))
        && chosen <= now + CLOCK_SKEW
        && now.since(chosen) <= max_age
}

fn mac(root: &Secret, stream: &str, number: u8, time: &[u8; TIME]) -> [u8; MAC] {
    let key = secret::derive(root, b"", "bearward event stream state v1");
    let mac = secret::mac(&key, &[&[number], time, stream.as_bytes()]);
    mac.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const DAY: Duration = Duration::from_hours(24);

    fn roots(number: u8) -> Roots {
        Roots::new((number, Secret::new(vec![number; 32])), vec![(number + 1, Secret::new(vec![number + 1; 32]))])
    }

    #[test]
    fn only_an_own_state_of_this_stream_is_known() {
        let state = new("corp", &roots(1), NOW).expect("a state");
        let known = |state: &str, stream, roots: &Roots, now| is_own(state, stream, roots, now, DAY);
        assert!(known(&state, "corp", &roots(1), NOW));
        assert!(known(&state, "corp", &roots(2), NOW + DAY), "another gateway, which knows the root secret");
        assert!(!known(&state, "corp", &roots(1), NOW + DAY + Duration::from_secs(1)), "too old");
        assert!(!known(&state, "corp", &roots(1), NOW - Duration::from_mins(2)), "of the future");
        assert!(!known(&state, "other", &roots(1), NOW));
        assert!(!known(&state, "corp", &roots(7), NOW), "another root secret");
        let other = if state.ends_with('A') { "B" } else { "A" };
        let changed = format!("{}{other}", &state[..state.len() - 1]);
        for wrong in ["", "AA", "x y", &changed, &state[..state.len() - 4], &format!("{state}AAAA")] {
            assert!(!known(wrong, "corp", &roots(1), NOW), "{wrong}");
        }
        assert_eq!(new("corp", &Roots::none(), NOW), None);
    }
}
