//! `[[rate]]` and `[[route.rate]]`: rate limits.

use std::time::Duration;

use http::Method;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::gateway::route::Route;
use crate::limits::rate_limit::{Per, RateLimitSettings, Share};

const MIN_WINDOW: Duration = Duration::from_secs(1);
const MAX_WINDOW: Duration = Duration::from_hours(24);
const MAX_REQUESTS: usize = 1_000_000;

const PER: &[(&str, Per)] = &[("address", Per::Address), ("subject", Per::Subject), ("route", Per::Route)];

const SHARE: &[(&str, Share)] = &[("replica", Share::Replica), ("cluster", Share::Cluster)];

pub(super) fn rates(table: &mut Table<'_>) -> Vec<RateLimitSettings> {
    table.tables("rate", rate).into_iter().flatten().collect()
}

/// Sets the number and the route of each limit after all limits were read.
pub(super) fn number_all(everywhere: &mut [RateLimitSettings], routes: &mut [Route]) {
    for Route { host, methods, path, rates, .. } in routes.iter_mut() {
        let methods: Vec<_> = methods.iter().map(Method::as_str).collect();
        let route = format!("{} {} {path}", host.as_deref().unwrap_or("*"), methods.join(","));
        rates.iter_mut().for_each(|rate| rate.route.clone_from(&route));
    }
    let all = everywhere.iter_mut().chain(routes.iter_mut().flat_map(|route| &mut route.rates));
    all.enumerate().for_each(|(number, rate)| rate.number = number);
}

/// `None` if a required key is missing or wrong. All other keys are checked anyway.
fn rate(table: &mut Table<'_>) -> Option<RateLimitSettings> {
    let per = table.required("per", Shape::choice(PER), "\"subject\"").and_then(|value| value.choice(PER));
    let requests = table
        .required("requests", Shape::Integer(1..=MAX_REQUESTS), "100")
        .and_then(|value| value.integer(1..=MAX_REQUESTS));
    let window = table.duration("window", Duration::from_mins(1), MIN_WINDOW..=MAX_WINDOW);
    let burst = table.take("burst", Shape::Integer(1..=MAX_REQUESTS)).and_then(|value| value.integer(1..=MAX_REQUESTS));
    let share = table.choice("share", Share::Replica, SHARE);
    let name = table.take("name", Shape::Pattern("^[!-~]{1,64}$")).and_then(|value| value.parse(name));
    let per = per?;
    let requests = requests?;
    let word = PER.iter().find(|(_, known)| *known == per).map_or("", |(word, _)| word);
    table.default("name", word);
    table.default("burst", requests);
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    Some(RateLimitSettings {
        number: 0,
        route: String::new(),
        name: name.unwrap_or_else(|| word.to_owned()),
        per,
        requests: count(requests),
        window,
        burst: count(burst.unwrap_or(requests)),
        share,
    })
}

/// The name is a string in a structured field (RFC 9651), which allows no quotes here.
fn name(text: &str) -> Result<String, ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new(
            "this name is not valid in a response header",
            "expected 1 to 64 ASCII characters without spaces and quotes",
        ))
    }
}
