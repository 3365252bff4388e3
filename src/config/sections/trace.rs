//! `[trace]`: the collector of spans, and which requests are sampled.

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::{files, pem};
use crate::protocols::url::{SecureUrl, UrlError};
use crate::telemetry::post::Receiver;
use crate::telemetry::spans::{Ratio, SpanSettings};

/// Keys that need `endpoint`.
const ENDPOINT_ONLY: &[&str] = &["allow_http", "ca_file", "authorization_file"];

/// One percent.
const DEFAULT_SAMPLE: Ratio = Ratio::from_millionths(10_000);

/// `None` without `endpoint`.
pub(super) fn read(table: &mut Table<'_>) -> Option<SpanSettings> {
    let receiver = receiver(table);
    let sample = table.take("sample", Shape::Pattern(r"^[0-9]{1,3}(\.[0-9]{1,4})?%$"));
    table.default("sample", "1%");
    let sample = sample.and_then(|value| value.parse(ratio));
    let errors = table.boolean("errors", true);
    let per_second = table.integer("per_second", 100, 0..=100_000);
    let queue_size = table.size("queue_size", 4 << 20, 64 << 10..=1 << 30);
    // An invalid endpoint has its own error.
    for key in ENDPOINT_ONLY.iter().filter(|key| table.has(key) && !table.has("endpoint")) {
        let error = ConfigError::new(format!("`{key}` has no effect"), "expected `endpoint` in this table");
        table.reject(key, error.help("add `endpoint = \"https://collector.example/v1/traces\"`, or remove this key"));
    }
    Some(SpanSettings {
        receiver: receiver?,
        sample: sample.unwrap_or(DEFAULT_SAMPLE),
        errors,
        per_second: u32::try_from(per_second).unwrap_or(u32::MAX),
        queue_size,
    })
}

fn receiver(table: &mut Table<'_>) -> Option<Receiver> {
    let allow_http = table.boolean("allow_http", false);
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let authorization_file = table.path("authorization_file");
    if let Some(path) = &authorization_file {
        table.accept("authorization_file", files::secret_contents(path));
    }
    let url = table.take("endpoint", Shape::URL)?;
    let url = url.parse(|text| SecureUrl::parse(text, allow_http).map_err(explain))?;
    let authorization_file = authorization_file.map(|file| ("trace.authorization_file", file));
    Some(Receiver { url, ca_file, authorization_file })
}

fn explain(error: UrlError) -> ConfigError {
    let expected = "expected https:// and a host";
    match error {
        UrlError::Invalid => ConfigError::new("this is not a URL for spans", expected)
            .help("write the complete URL, for example \"https://collector.example/v1/traces\""),
        UrlError::Credentials => ConfigError::new("the URL contains a user name or password", expected)
            .help("write the value of the Authorization header to a file, and name it in `authorization_file`")
            .confidential(),
        UrlError::Fragment => {
            ConfigError::new("the URL contains a fragment", expected).help("remove `#` and the text after it")
        }
        UrlError::Cleartext => ConfigError::new("spans would be sent in cleartext", expected).help(
            "use https://; on a trusted network, set `allow_http = true` (spans contain paths and addresses of clients)",
        ),
    }
}

/// Reads a percentage with at most four digits after the point.
fn ratio(text: &str) -> Result<Ratio, ConfigError> {
    let error = || {
        ConfigError::new(format!("{text:?} is not a part of all traces"), "expected a percentage from 0% to 100%")
            .help("write for example \"1%\" or \"0.1%\"")
    };
    let number = text.strip_suffix('%').ok_or_else(error)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |text: &str, max: usize| (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole, 3) || !is_number(part, 4) {
        return Err(error());
    }
    let (whole, part): (u64, u64) =
        (whole.parse().map_err(|_| error())?, format!("{part:0<4}").parse().map_err(|_| error())?);
    let millionths = whole * 10_000 + part;
    if millionths > 1_000_000 { Err(error()) } else { Ok(Ratio::from_millionths(millionths)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_read_exactly() {
        for (text, millionths) in [
            ("0%", 0),
            ("100%", 1_000_000),
            ("1%", 10_000),
            ("0.1%", 1_000),
            ("12.3456%", 123_456),
            ("100.0%", 1_000_000),
        ] {
            assert_eq!(ratio(text).ok(), Some(Ratio::from_millionths(millionths)), "{text}");
        }
        for text in ["1", "0.01", "101%", "100.0001%", "-1%", "1.%", ".5%", "1.23456%", "%", " 1%", "1 %", "1e1%"] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }
}
