//! Times of log lines, as RFC 3339 text.

use crate::types::clock::UnixTime;

/// Formats times and caches the text of the last second, which thousands of lines share.
#[derive(Default)]
pub(super) struct Timestamps {
    secs: u64,
    /// `2026-11-20T23:05:21.` and, after it, the milliseconds of the last line.
    text: String,
    /// The length of the first part.
    second_len: usize,
}

impl Timestamps {
    pub(super) fn format(&mut self, time: UnixTime) -> &str {
        if time.as_secs() != self.secs || self.text.is_empty() {
            self.secs = time.as_secs();
            self.text = UnixTime::from_secs(self.secs).to_string();
            // Without the milliseconds and the Z.
            self.second_len = self.text.len().saturating_sub(4);
        }
        self.text.truncate(self.second_len);
        let millis = time.as_millis() % 1000;
        self.text.extend([millis / 100, millis / 10 % 10, millis % 10].map(|digit| char::from(b'0' + digit as u8)));
        self.text.push('Z');
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_each_time_with_its_milliseconds() {
        let mut timestamps = Timestamps::default();
        let mut format = |millis| timestamps.format(UnixTime::from_millis(millis)).to_owned();
        assert_eq!(format(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format(1_999), "1970-01-01T00:00:01.999Z");
        assert_eq!(format(1_000), "1970-01-01T00:00:01.000Z");
        assert_eq!(format(999), "1970-01-01T00:00:00.999Z");
    }
}
