//! `[upstream.health_check]` and `[upstream.ejection]`: when the gateway stops sending requests to a server.

use std::time::Duration;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::limits::{MAX_TIMEOUT, MIN_TIMEOUT};
use crate::upstream::{EjectionSettings, ExpectedStatus, HealthCheckSettings};

/// `None` if the file omits the table.
pub(super) fn health_check(upstream: &mut Table<'_>) -> Option<HealthCheckSettings> {
    let table = upstream.take("health_check", Shape::Table)?.table()?;
    Some(table.read(|table| {
        let path =
            table.required("path", Shape::Pattern("^/"), "\"/healthz\"").and_then(|value| value.parse(check_path));
        HealthCheckSettings {
            path: path.unwrap_or_else(|| "/".to_owned()),
            interval: table.duration("interval", Duration::from_secs(5), Duration::from_millis(10)..=MAX_TIMEOUT),
            timeout: table.duration("timeout", Duration::from_secs(2), MIN_TIMEOUT..=MAX_TIMEOUT),
            healthy_threshold: count(table, "healthy_threshold", 2, 1),
            unhealthy_threshold: count(table, "unhealthy_threshold", 3, 1),
            status: good_statuses(table),
        }
    }))
}

pub(super) fn ejection(upstream: &mut Table<'_>) -> EjectionSettings {
    upstream.table("ejection", |table| {
        let settings = EjectionSettings {
            consecutive_failures: count(table, "consecutive_failures", 3, 0),
            base_time: table.duration("base_time", Duration::from_secs(10), MIN_TIMEOUT..=MAX_TIMEOUT),
            max_time: table.duration("max_time", Duration::from_mins(5), MIN_TIMEOUT..=MAX_TIMEOUT),
            slow_start: table.duration("slow_start", Duration::from_secs(10), Duration::ZERO..=MAX_TIMEOUT),
        };
        if settings.max_time < settings.base_time {
            let place = if table.has("max_time") { "max_time" } else { "base_time" };
            let error = ConfigError::new(
                "max_time is shorter than base_time",
                "expected `max_time` to be at least `base_time`",
            );
            table.reject(
                place,
                error.help("raise `max_time` or lower `base_time`; repeated ejections double up to `max_time`"),
            );
        }
        settings
    })
}

fn count(table: &mut Table<'_>, key: &'static str, default: usize, least: usize) -> u32 {
    u32::try_from(table.integer(key, default, least..=1_000)).unwrap_or(u32::MAX)
}

fn check_path(text: &str) -> Result<String, ConfigError> {
    let expected = "expected a path, for example \"/healthz\"";
    if !text.starts_with('/') {
        let error = ConfigError::new(format!("\"{}\" is not a path", text.escape_debug()), expected);
        return Err(error.help("start it with a slash; host and port belong in `servers`"));
    }
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if text.bytes().all(allowed) && text.parse::<http::Uri>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new(format!("\"{}\" is not a valid path", text.escape_debug()), expected)
            .help("percent-encode spaces and non-ASCII characters; a path has no `#`"))
    }
}

fn good_statuses(table: &mut Table<'_>) -> Vec<ExpectedStatus> {
    let example = "[\"2xx\"]";
    let default = || vec![ExpectedStatus::Class(2)];
    let shape = Shape::some(Shape::Pattern("^([1-5]xx|[1-5][0-9][0-9])$"));
    let status = table.take("status", shape);
    table.default("status", ["2xx"].as_slice());
    let Some(value) = status else { return default() };
    let Some(statuses) = value.list_of(example, statuses) else { return default() };
    if value.list(example).is_some_and(|list| list.is_empty()) {
        value.reject(ConfigError::new(
            "the list is empty",
            format!("expected at least one status, for example {example}"),
        ));
    }
    statuses
}

fn statuses(text: &str) -> Result<ExpectedStatus, ConfigError> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse().ok()).filter(|class| (1..=5).contains(class));
    let one = text.parse().ok().filter(|status| text.len() == 3 && (100..=599).contains(status));
    class.map(ExpectedStatus::Class).or(one.map(ExpectedStatus::One)).ok_or_else(|| {
        ConfigError::new(
            format!("\"{}\" is not a status", text.escape_debug()),
            "expected a status such as \"204\", or a class such as \"2xx\"",
        )
    })
}
