//! The rate of an API key: how many requests its program may send.

use std::fmt;
use std::time::Duration;

/// As for `[[rate]]`.
const MAX_REQUESTS: u32 = 1_000_000;

const WINDOWS: [(&str, Duration); 4] = [
    ("s", Duration::from_secs(1)),
    ("min", Duration::from_mins(1)),
    ("h", Duration::from_hours(1)),
    ("day", Duration::from_hours(24)),
];

/// `100/min`: 100 requests in each minute, and as many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRate {
    requests: u32,
    /// Index in [`WINDOWS`].
    window: usize,
}

impl KeyRate {
    /// What a valid rate looks like.
    pub const EXPECTED: &str = "expected 1 to 1000000 requests per s, min, h or day, such as 100/min";

    pub fn parse(text: &str) -> Option<Self> {
        let (requests, unit) = text.split_once('/')?;
        // No sign, no zeros before it: one text for each rate.
        let is_number = !requests.starts_with('0') && requests.bytes().all(|byte| byte.is_ascii_digit());
        let requests = requests.parse().ok().filter(|number| is_number && (1..=MAX_REQUESTS).contains(number))?;
        let window = WINDOWS.iter().position(|(name, _)| *name == unit)?;
        Some(KeyRate { requests, window })
    }

    pub fn requests(self) -> u32 {
        self.requests
    }

    pub fn window(self) -> Duration {
        WINDOWS[self.window].1
    }
}

impl fmt::Display for KeyRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.requests, WINDOWS[self.window].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_number_and_a_unit() {
        for (text, requests, seconds) in
            [("1/s", 1, 1), ("100/min", 100, 60), ("1000000/h", 1_000_000, 3_600), ("5/day", 5, 86_400)]
        {
            let rate = KeyRate::parse(text).expect("valid");
            assert_eq!((rate.requests(), rate.window().as_secs()), (requests, seconds), "{text}");
            assert_eq!(rate.to_string(), text);
        }
        for text in
            ["", "100", "/min", "0/min", "01/min", "+1/min", "-1/s", "1000001/s", "1/m", "1/min ", "1 /s", "1/2/s"]
        {
            assert_eq!(KeyRate::parse(text), None, "{text:?}");
        }
    }
}
