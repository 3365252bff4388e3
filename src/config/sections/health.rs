//! `[upstream.health_check]` and `[upstream.ejection]`: when a server is left out.

use std::time::Duration;

use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::sections::limits::{LONGEST, SHORTEST};
use crate::upstream::health::{Settings, Statuses};
use crate::upstream::outlier;

/// `None` without the table.
pub(super) fn health_check(upstream: &mut Table<'_>) -> Option<Settings> {
    let table = upstream.take("health_check")?.table()?;
    Some(table.read(|table| {
        let path = table.required("path", "\"/healthz\"").and_then(|value| value.parse(path_of_a_check));
        Settings {
            path: path.unwrap_or_else(|| "/".to_owned()),
            interval: table.duration("interval", Duration::from_secs(5), Duration::from_millis(10)..=LONGEST),
            timeout: table.duration("timeout", Duration::from_secs(2), SHORTEST..=LONGEST),
            healthy_threshold: count(table, "healthy_threshold", 2, 1),
            unhealthy_threshold: count(table, "unhealthy_threshold", 3, 1),
            status: good_statuses(table),
        }
    }))
}

pub(super) fn ejection(upstream: &mut Table<'_>) -> outlier::Settings {
    upstream.table("ejection", |table| {
        let settings = outlier::Settings {
            consecutive_failures: count(table, "consecutive_failures", 3, 0),
            base_time: table.duration("base_time", Duration::from_secs(10), SHORTEST..=LONGEST),
            max_time: table.duration("max_time", Duration::from_mins(5), SHORTEST..=LONGEST),
            slow_start: table.duration("slow_start", Duration::from_secs(10), Duration::ZERO..=LONGEST),
        };
        if settings.max_time < settings.base_time {
            let place = if table.has("max_time") { "max_time" } else { "base_time" };
            let fault =
                Fault::new("the longest time is shorter than the first", "expected `max_time` of at least `base_time`");
            table.wrong(place, fault.help("each ejection soon after a return is twice as long, up to `max_time`"));
        }
        settings
    })
}

fn count(table: &mut Table<'_>, key: &'static str, default: usize, least: usize) -> u32 {
    u32::try_from(table.whole(key, default, least..=1_000)).unwrap_or(u32::MAX)
}

fn path_of_a_check(text: &str) -> Result<String, Fault> {
    let expected = "expected a path, as \"/healthz\"";
    if !text.starts_with('/') {
        let fault = Fault::new(format!("\"{}\" is not a path", text.escape_debug()), expected);
        return Err(fault.help("it begins with a slash; the server and its port stand in `servers`"));
    }
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    match text.bytes().all(allowed) && text.parse::<http::Uri>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err(Fault::new(format!("\"{}\" cannot be asked for", text.escape_debug()), expected)
            .help("what is not ASCII, and a space, is percent-encoded")),
    }
}

fn good_statuses(table: &mut Table<'_>) -> Vec<Statuses> {
    let example = "[\"2xx\"]";
    let default = || vec![Statuses::Class(2)];
    let Some(value) = table.take("status") else { return default() };
    let Some(statuses) = value.list_of(example, statuses) else { return default() };
    if value.list(example).is_some_and(|list| list.is_empty()) {
        value.wrong(Fault::new("no answer would be good enough", format!("expected at least one, as {example}")));
    }
    statuses
}

fn statuses(text: &str) -> Result<Statuses, Fault> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse().ok()).filter(|class| (1..=5).contains(class));
    let one = text.parse().ok().filter(|status| text.len() == 3 && (100..=599).contains(status));
    class.map(Statuses::Class).or(one.map(Statuses::One)).ok_or_else(|| {
        Fault::new(
            format!("\"{}\" is not a status", text.escape_debug()),
            "expected one, as \"204\", or a class, as \"2xx\"",
        )
    })
}
