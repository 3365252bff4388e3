//! The attempts of one browser: how many run, and how often it began one. Pure.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};

use super::attempt_cookies::{self, MAX_SEALED, MAX_VALUE};
use crate::auth::bearer::session_cookie;
use crate::protocols::http::header_list;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sign_in::attempt;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Maximum attempts that run at once in one browser: one for each tab.
const MAX_RUNNING: usize = 4;

/// Maximum size of the attempts that go on beside a new one, in bytes. [`room`] is that of all of them.
const MAX_KEPT: usize = 4096;

/// Maximum cookies that are opened: each costs a decryption.
const MAX_OPENED: usize = 16;

/// Maximum starts within [`WINDOW_SECS`]. With more, the browser goes in a circle: it keeps no cookies, or its session
/// ends as soon as it begins.
const MAX_STARTS: usize = 3;
const WINDOW_SECS: u64 = 60;

/// The times of the last starts with this one, or why there may be no further one.
pub(super) fn count(headers: &HeaderMap, now: UnixTime) -> Result<Vec<u64>, Reject> {
    let now = now.as_secs();
    let is_recent = |time: &u64| now.abs_diff(*time) <= WINDOW_SECS;
    let mut recent: Vec<u64> =
        session_cookie::starts(headers).unwrap_or_default().into_iter().filter(is_recent).collect();
    if recent.len() >= MAX_STARTS {
        let reject = Reject::new(Reason::SignInLoop, "more than 3 starts of one browser within 60 s");
        let oldest = recent.iter().min().copied().unwrap_or(now);
        let wait = Duration::from_secs((oldest + WINDOW_SECS + 1).saturating_sub(now).clamp(1, WINDOW_SECS + 1));
        return Err(reject.with_retry_after(wait));
    }
    recent.push(now);
    Ok(recent)
}

/// Maximum size of all attempts of this browser, in bytes. It sends them with each request, for ten minutes if the user
/// does not come back. A head like this one must have room for them in `limits.request_header_size` (`limit`), or every
/// page would be a 431. If this head alone takes half of that, the next one can have more: a long `Referer`, or cookies
/// of the application.
pub(super) fn room<B>(request: &Request<B>, limit: usize) -> usize {
    let cookies = session_cookie::attempts(request.headers());
    let of_attempts: usize = cookies.map(|(name, value)| name.len() + "=; ".len() + value.len()).sum();
    let own = header_list::size_of_head(request).saturating_sub(of_attempts);
    let half = limit / 2;
    if own <= half { MAX_SEALED.min(half) } else { MAX_VALUE.min(limit.saturating_sub(own) / 2) }
}

/// `Set-Cookie` for the attempts that have ended, and for the oldest ones if there is no room for another. `new_size`:
/// that of the new one. `room`: for all of them.
pub(super) fn surplus(
    headers: &HeaderMap,
    roots: &Roots,
    now: UnixTime,
    new_size: usize,
    room: usize,
) -> Vec<HeaderValue> {
    let cookies = attempt_cookies::all(headers).take(MAX_OPENED);
    let opened = cookies.map(|cookies| {
        let attempt = attempt::open(cookies.name, &cookies.sealed, roots).filter(|attempt| attempt.is_current(now));
        (attempt.map(|attempt| attempt.begun_at()), cookies)
    });
    let mut opened: Vec<_> = opened.collect();
    // The newest first; those that have ended are the last.
    opened.sort_by(|one, other| other.cmp(one));
    let running = opened.iter().take_while(|(begun, _)| begun.is_some());
    let sizes = running.scan(0, |size, (_, cookies)| {
        *size += cookies.sealed.len();
        Some(*size)
    });
    let room = room.saturating_sub(new_size).min(MAX_KEPT);
    let kept = sizes.take(MAX_RUNNING - 1).take_while(|size| *size <= room).count();
    opened[kept..].iter().flat_map(|(_, cookies)| attempt_cookies::clear(headers, cookies.name)).collect()
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;
    use crate::tokens::sign_in::freshness::Freshness;
    use crate::types::secret::Secret;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    fn with_starts(times: &[u64]) -> HeaderMap {
        let times: Vec<_> = times.iter().map(|ago| (NOW.as_secs() - ago).to_string()).collect();
        let field = HeaderValue::from_str(&format!("__Host-bw-starts={}", times.join("."))).expect("a value");
        [(COOKIE, field)].into_iter().collect()
    }

    #[test]
    fn the_fourth_start_within_a_minute_is_a_loop() {
        let count = |times: &[u64]| count(&with_starts(times), NOW).map(|times| times.len()).ok();
        assert_eq!(count(&[]), Some(1), "an empty value is no time");
        assert_eq!(count(&[60, 30]), Some(3));
        assert_eq!(count(&[60, 30, 0]), None);
        assert_eq!(count(&[61, 30, 0]), Some(3));
        assert_eq!(super::count(&HeaderMap::new(), NOW).ok(), Some(vec![NOW.as_secs()]));
        let wait = super::count(&with_starts(&[20, 10, 0]), NOW).err().and_then(|reject| reject.retry_after());
        assert_eq!(wait, Some(Duration::from_secs(41)), "when the first of them is out of the minute");
    }

    #[test]
    fn a_head_has_room_for_the_attempts_of_the_next_one() {
        let of = |limit, url: usize, referer: usize, attempts: usize| {
            let request = Request::get(format!("/{}", "a".repeat(url)))
                .header("referer", "b".repeat(referer))
                .header(COOKIE, format!("__Host-bw-try-abcdef={}; of_the_application=x", "c".repeat(attempts)));
            room(&request.body(()).expect("a request"), limit)
        };
        let default = 16 * 1024;
        for (room, url, referer, attempts) in [
            (MAX_SEALED, 0, 0, 0),
            (MAX_SEALED, 5_120, 2_500, MAX_VALUE),
            (MAX_VALUE, 5_120, 3_000, 0),
            (MAX_VALUE, 5_120, 3_000, MAX_VALUE),
        ] {
            assert_eq!(of(default, url, referer, attempts), room, "{url} {referer} {attempts}");
        }
        assert!((950..1_050).contains(&of(default, 7_000, 7_200, 0)), "half of what is left");
        assert_eq!((of(8 * 1024, 1_000, 1_000, 0), of(default, 8_000, 9_000, 0)), (4 * 1024, 0));
    }

    #[test]
    fn long_return_paths_leave_room_for_other_cookies() {
        let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
        let attempts = [(0, 2_048), (10, 700), (20, 10)].map(|(ago, length)| {
            let path = format!("/{}", "a".repeat(length - 1));
            let (attempt, state) =
                attempt::begin("main", "https://a", &path, Freshness::Any, NOW - Duration::from_secs(ago));
            let name = attempt::cookie_name(&state).expect("a state");
            let value = attempt.seal(&name, &roots).expect("sealed");
            format!("{name}={value}")
        });
        for (number, new_size, cleared) in [(1, 700, 0), (2, 700, 1), (3, 700, 2), (1, 3_900, 0), (1, 5_000, 1)] {
            let field = HeaderValue::from_str(&attempts[..number].join("; ")).expect("a value");
            let headers = [(COOKIE, field)].into_iter().collect();
            assert_eq!(surplus(&headers, &roots, NOW, new_size, MAX_SEALED).len(), cleared, "{number} {new_size}");
        }
    }

    #[test]
    fn the_oldest_attempts_make_room() {
        let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
        let attempt = |ago| {
            let (attempt, state) =
                attempt::begin("main", "https://a", "/", Freshness::Any, NOW - Duration::from_secs(ago));
            let name = attempt::cookie_name(&state).expect("a state");
            let value = attempt.seal(&name, &roots).expect("sealed");
            (name, value)
        };
        let attempts = [50, 10, 601, 40, 20, 30].map(attempt);
        let text: Vec<_> = attempts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let text = format!("{}; __Host-bw-try-forged=x", text.join("; "));
        let headers = [(COOKIE, HeaderValue::from_str(&text).expect("a value"))].into_iter().collect();
        let cleared: Vec<_> = surplus(&headers, &roots, NOW, 700, MAX_SEALED);
        let is_cleared =
            |name: &str| cleared.iter().any(|field| field.to_str().is_ok_and(|text| text.starts_with(name)));
        let left = attempts.each_ref().map(|(name, _)| !is_cleared(name));
        assert_eq!(left, [false, true, false, false, true, true]);
        assert!(is_cleared("__Host-bw-try-forged") && cleared.len() == 4);
    }
}
