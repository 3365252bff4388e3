//! What the gateway has fetched from the URLs of strangers, in a bounded memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::types::clock::Uptime;

/// Maximum number of values that are kept.
const MAX_KEPT: usize = 1_000;

/// Values by their URL. Beyond 1,000, the least recently used makes room.
pub(super) struct Fetched<T> {
    values: Mutex<HashMap<String, Kept<T>>>,
}

struct Kept<T> {
    value: Arc<T>,
    fetched: Uptime,
    used: Uptime,
}

impl<T> Fetched<T> {
    /// The value, if it was fetched less than `longest` ago.
    pub(super) fn get(&self, url: &str, longest: Duration, now: Uptime) -> Option<Arc<T>> {
        let mut values = self.values.lock();
        let kept = values.get_mut(url)?;
        if now.since(kept.fetched) >= longest {
            return None;
        }
        kept.used = now;
        Some(kept.value.clone())
    }

    pub(super) fn keep(&self, url: &str, value: Arc<T>, now: Uptime) {
        let mut values = self.values.lock();
        if values.len() >= MAX_KEPT && !values.contains_key(url) {
            let unused = values.iter().min_by_key(|(_, kept)| kept.used).map(|(url, _)| url.clone());
            unused.and_then(|url| values.remove(&url));
        }
        values.insert(url.to_owned(), Kept { value, fetched: now, used: now });
    }

    /// Each URL with what `read` says of its value.
    pub(super) fn all<R>(&self, read: impl Fn(&T) -> R) -> Vec<(String, R)> {
        self.values.lock().iter().map(|(url, kept)| (url.clone(), read(&kept.value))).collect()
    }
}

impl<T> Default for Fetched<T> {
    fn default() -> Self {
        Fetched { values: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let fetched = Fetched::default();
        let at = |seconds: usize| Uptime::default() + Duration::from_secs(seconds as u64);
        let get = |fetched: &Fetched<usize>, number: usize| {
            fetched.get(&number.to_string(), Duration::MAX, at(2 * MAX_KEPT)).map(|value| *value)
        };
        for number in 0..MAX_KEPT {
            fetched.keep(&number.to_string(), Arc::new(number), at(number));
        }
        fetched.keep("0", Arc::new(0), at(MAX_KEPT));
        assert_eq!(get(&fetched, 1), Some(1), "a value that is fetched again needs no room");
        fetched.keep("new", Arc::new(7), at(MAX_KEPT + 1));
        // 0 was fetched again, and 1 was used.
        assert_eq!((get(&fetched, 0), get(&fetched, 1), get(&fetched, 2)), (Some(0), Some(1), None));
        assert_eq!(fetched.all(|_| ()).len(), MAX_KEPT);
    }

    #[test]
    fn a_value_is_given_until_it_is_as_old_as_wanted() {
        let fetched = Fetched::default();
        let begun = Uptime::default();
        fetched.keep("url", Arc::new(()), begun);
        let second = Duration::from_secs(1);
        assert!(fetched.get("url", second, begun + second - Duration::from_micros(1)).is_some());
        assert!(fetched.get("url", second, begun + second).is_none());
    }
}
