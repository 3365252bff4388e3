//! A second as one line.

use serde_json::Value;

use super::numbers::{count, duration, members, rate};
use crate::cli::terminal::text_member;

pub(super) fn of(second: &Value) -> String {
    let rejected: u64 = members(second, "rejections").iter().map(|(_, count)| count).sum();
    let out = count(second, "/servers/ejected") + count(second, "/servers/unhealthy");
    format!(
        "{} rate={} 2xx={} 3xx={} 4xx={} 5xx={} rejected={rejected} p50={} p99={} in_flight={} streams={} \
         connections={} tokens={} servers_out={out} log_dropped={}\n",
        text_member(second, "time"),
        rate(second),
        count(second, "/requests/2xx"),
        count(second, "/requests/3xx"),
        count(second, "/requests/4xx"),
        count(second, "/requests/5xx"),
        duration(second, "p50Seconds"),
        duration(second, "p99Seconds"),
        count(second, "/requestsInFlight"),
        count(second, "/openStreams"),
        count(second, "/openConnections"),
        count(second, "/tokensKnown"),
        count(second, "/logLinesDropped"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_no_control_characters_of_a_response() {
        let line = of(&json!({ "time": "12:00\u{1b}[2J\r\n", "rejections": { "a": 2, "b": 1 } }));
        assert!(line.starts_with("12:00\\u{1b}[2J\\u{d}\\u{a} rate=0 "), "{line}");
        assert!(line.contains(" rejected=3 p50=- ") && line.ends_with(" log_dropped=0\n"), "{line}");
        assert_eq!(line.chars().filter(|c| c.is_control()).count(), 1);
    }
}
