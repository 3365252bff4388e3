//! `[route.respond]` and `[maintenance]`: responses that the configuration has.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::gateway::fixed_response::{FixedResponse, Maintenance, Page};

const CONTENT_TYPE: &str = "text/plain; charset=utf-8";
const MEDIA_TYPE: Shape = Shape::Pattern("^[!-~]+/[ -~]*[!-~]$");
const MAX_BODY: usize = 64 * 1024;
const RETRY_AFTER: Duration = Duration::from_mins(5);
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_hours(30 * 24);

/// Keys of a route that need a backend.
const OF_BACKENDS: [&str; 8] =
    ["upstream", "strip_prefix", "login", "logout", "preflight", "request_headers", "token", "token_audience"];

/// `[maintenance]`
pub(super) struct Switch {
    enabled: bool,
    settings: Arc<Maintenance>,
}

pub(super) fn maintenance(table: &mut Table<'_>) -> Switch {
    let enabled = table.boolean("enabled", false);
    let retry_after = table.duration("retry_after", RETRY_AFTER, MIN_RETRY_AFTER..=MAX_RETRY_AFTER);
    Switch { enabled, settings: Arc::new(Maintenance { retry_after, page: page(table) }) }
}

impl Switch {
    /// For a file without routes.
    pub(super) fn of_all(&self) -> Option<Arc<Maintenance>> {
        self.enabled.then(|| self.settings.clone())
    }

    /// `route.maintenance`
    pub(super) fn of_route(&self, table: &mut Table<'_>) -> Option<Arc<Maintenance>> {
        table.boolean("maintenance", self.enabled).then(|| self.settings.clone())
    }
}

/// `[route.respond]`. `None` if the route has a backend.
pub(super) fn of_route(table: &mut Table<'_>) -> Option<Arc<FixedResponse>> {
    let has_respond = table.has("respond");
    let response = table.table("respond", respond);
    if !has_respond {
        return None;
    }
    for key in OF_BACKENDS {
        if table.has(key) {
            let error = ConfigError::new(
                format!("`{key}` has no effect without a backend"),
                format!("expected `{key}` or [route.respond], not both"),
            );
            table.reject(key, error.related(&table.place("respond"), "the gateway responds itself here"));
        }
    }
    response.map(Arc::new)
}

fn respond(table: &mut Table<'_>) -> Option<FixedResponse> {
    let status = table.required("status", Shape::Integer(200..=599), "503");
    let status = status.and_then(|value| value.integer(200..=599));
    let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    let page = page(table);
    let retry_after = table.take("retry_after", Shape::Duration(MIN_RETRY_AFTER..=MAX_RETRY_AFTER));
    let retry_after = retry_after.and_then(|value| value.duration(MIN_RETRY_AFTER..=MAX_RETRY_AFTER));
    // RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5.
    let without_body = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    if page.is_some() && status.is_some_and(|status| without_body.contains(&status)) {
        let error = ConfigError::new("a response with this status has no body", "expected no `body`");
        table.reject("body", error.related(&table.place("status"), "the status"));
    }
    Some(FixedResponse { status: status?, page, retry_after })
}

/// `body` and `content_type`
fn page(table: &mut Table<'_>) -> Option<Page> {
    let body = table.take("body", Shape::Text);
    table.default("body", "");
    let content_type = table.take("content_type", MEDIA_TYPE);
    table.default("content_type", CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.parse(media_type));
    let content_type = content_type.unwrap_or_else(|| HeaderValue::from_static(CONTENT_TYPE));
    let body = body?.parse(|text| match text.len() {
        0..=MAX_BODY => Ok(text.to_owned()),
        size => Err(ConfigError::new(format!("the body has {size} bytes"), format!("expected at most {MAX_BODY}"))
            .help("serve it from a backend")),
    })?;
    (!body.is_empty()).then(|| Page { body: body.into(), content_type })
}

fn media_type(text: &str) -> Result<HeaderValue, ConfigError> {
    let error = || ConfigError::new("this is not a media type", "expected for example \"text/html; charset=utf-8\"");
    // A line feed would begin another header.
    let is_valid = text.contains('/') && text.trim() == text && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = is_valid.then(|| HeaderValue::from_str(text).ok()).flatten();
    value.ok_or_else(error)
}
