//! Durations and sizes with units: `"15m"`, `"8KiB"`. A number without a unit is rejected: its unit would be a guess.

use std::time::Duration;

use bytesize::ByteSize;
use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

use crate::config::document::error::ConfigError;

pub(crate) const DURATION_UNITS: &[&str] = &["s", "m", "h", "d"];
pub(crate) const SIZE_UNITS: &[&str] = &["B", "KiB", "MiB"];

/// The error for a number without a unit.
pub(crate) fn missing_unit(what: &str, number: &str, units: &[&str]) -> ConfigError {
    let choices: Vec<String> = units.iter().map(|unit| format!("\"{number}{unit}\"")).collect();
    ConfigError::new("the unit is missing", format!("expected {what}"))
        .help(format!("write the unit, for example {}", choices.join(", ")))
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, ConfigError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(missing_unit("a duration", text, DURATION_UNITS));
    }
    // A day always has 24 hours, also when clocks change. Months and years have no fixed length and are rejected.
    let parsed =
        SpanParser::new().parse_span(text).and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    parsed.ok().and_then(|duration| Duration::try_from(duration).ok()).ok_or_else(|| {
        ConfigError::new(format!("\"{text}\" is not a duration"), "expected a number and its unit: ms, s, m, h, d or w")
            .help("write for example \"30s\", \"15m\", \"1h 30m\" or \"7d\"")
    })
}

pub(crate) fn parse_size(text: &str) -> Result<usize, ConfigError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(missing_unit("a size", text, SIZE_UNITS));
    }
    let size = text.parse::<ByteSize>().ok().and_then(|size| usize::try_from(size.as_u64()).ok());
    size.ok_or_else(|| {
        ConfigError::new(format!("\"{text}\" is not a size"), "expected a number and its unit: B, KiB, MiB or GiB")
            .help("write for example \"8KiB\" (8 × 1024 bytes) or \"8KB\" (8 × 1000 bytes)")
    })
}

/// The shortest exact text: `7d`, `90s`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.into_iter().find(|(unit, _)| millis >= *unit && millis.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

pub(crate) fn format_size(bytes: usize) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_days_of_24_hours() {
        let rows = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("1h 30m", Some(5_400_000)),
            ("7d", Some(604_800_000)),
            ("2w", Some(1_209_600_000)),
            ("1mo", None),
            ("-5m", None),
            ("5m ago", None),
            ("15", None),
            ("", None),
            ("soon", None),
            ("99999999999999h", None),
        ];
        for (text, millis) in rows {
            assert_eq!(parse_duration(text).ok().map(|read| read.as_millis()), millis, "{text}");
        }
        let formatted = ["250ms", "30s", "90m", "24h", "7d"].map(|text| parse_duration(text).map(format_duration));
        assert_eq!(formatted.map(|text| text.unwrap_or_default()), ["250ms", "30s", "90m", "1d", "7d"]);
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        let rows = [
            ("8KiB", Some(8192)),
            ("8KB", Some(8000)),
            ("1.5 MiB", Some(1_572_864)),
            ("512B", Some(512)),
            ("512", None),
            ("-1B", None),
            ("many", None),
            ("", None),
        ];
        for (text, bytes) in rows {
            assert_eq!(parse_size(text).ok(), bytes, "{text}");
        }
        assert_eq!([format_size(8192), format_size(1 << 20), format_size(1000)], ["8KiB", "1MiB", "1000B"]);
    }
}
