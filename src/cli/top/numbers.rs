//! The numbers of a second, as people read them.

use serde_json::Value;

use crate::cli::terminal::printable;

/// The number at this place; 0 if it is missing.
pub(super) fn count(second: &Value, pointer: &str) -> u64 {
    second.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// All requests of a second.
pub(super) fn requests(second: &Value) -> u64 {
    members(second, "requests").iter().map(|(_, count)| count).sum()
}

/// Requests per second.
pub(super) fn rate(second: &Value) -> u64 {
    let interval = second.get("interval").and_then(Value::as_f64).unwrap_or(1.0).max(0.001);
    (requests(second) as f64 / interval).round() as u64
}

/// The names and numbers of an object, with the largest number first.
pub(super) fn members(value: &Value, name: &str) -> Vec<(String, u64)> {
    let members = value.get(name).and_then(Value::as_object).into_iter().flatten();
    let mut members: Vec<_> =
        members.map(|(name, count)| (printable(name), count.as_u64().unwrap_or_default())).collect();
    members.sort_by(|(name, count), (other, than)| than.cmp(count).then(name.cmp(other)));
    members
}

/// A duration in seconds: `-` if it is missing.
pub(super) fn duration(second: &Value, name: &str) -> String {
    match second.get(name).and_then(Value::as_f64) {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0}us", seconds * 1e6),
        Some(seconds) if seconds < 0.01 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duration_has_a_unit_that_fits() {
        for (seconds, expected) in [
            (json!(0.000_05), "50us"),
            (json!(0.001_25), "1.2ms"),
            (json!(0.25), "250ms"),
            (json!(2.5), "2.5s"),
            (json!(30), "30.0s"),
            (Value::Null, "-"),
            (json!("\u{1b}[2J"), "-"),
        ] {
            assert_eq!(duration(&json!({ "p50Seconds": seconds }), "p50Seconds"), expected);
        }
    }

    #[test]
    fn a_rate_is_per_second_also_of_a_longer_interval() {
        let second = |interval: f64| json!({ "interval": interval, "requests": { "2xx": 30, "clientClosed": 10 } });
        assert_eq!((rate(&second(1.0)), rate(&second(4.0)), rate(&second(0.0))), (40, 10, 40_000));
        assert_eq!(rate(&json!({})), 0);
    }
}
