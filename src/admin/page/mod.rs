//! The operators' page: files in the program, at `/` and below `/page/`.
//!
//! They hold nothing that needs a token, so they are served without one. What the page shows comes from `/admin/v1`,
//! with the token of the operator. There is no build step: each file is sent as it is in `assets/`.

use std::sync::LazyLock;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::protocols::http::body::Body;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Scripts and styles come from this listener only, and no text can become markup or a script (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// A browser asks again each time, so that a page is never made of files of two releases.
const CACHE_CONTROL: &str = "no-cache";

/// What each file is sent with.
const FIELDS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, CACHE_CONTROL),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

struct File {
    path: &'static str,
    content_type: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($path:literal, $type:ident, $name:literal) => {
        File { path: $path, content_type: $type, content: include_str!(concat!("assets/", $name)) }
    };
}

static FILES: [File; 14] = [
    file!("/", HTML, "index.html"),
    file!("/page/icon.svg", SVG, "icon.svg"),
    file!("/page/page.css", CSS, "page.css"),
    file!("/page/api.js", SCRIPT, "api.js"),
    file!("/page/apikeys.js", SCRIPT, "apikeys.js"),
    file!("/page/certificates.js", SCRIPT, "certificates.js"),
    file!("/page/configuration.js", SCRIPT, "configuration.js"),
    file!("/page/dom.js", SCRIPT, "dom.js"),
    file!("/page/keys.js", SCRIPT, "keys.js"),
    file!("/page/logins.js", SCRIPT, "logins.js"),
    file!("/page/main.js", SCRIPT, "main.js"),
    file!("/page/now.js", SCRIPT, "now.js"),
    file!("/page/state.js", SCRIPT, "state.js"),
    file!("/page/why.js", SCRIPT, "why.js"),
];

/// The entity tag of each file.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| FILES.iter().map(tag).collect());

fn tag(file: &File) -> HeaderValue {
    let digest = secret::digest(&[file.content.as_bytes()]);
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The response for a file of the page. `None`: the path is none of them.
pub(super) fn handle(method: &Method, path: &str, headers: &HeaderMap) -> Option<Result<Response<Body>, Reject>> {
    let (file, tag) = FILES.iter().zip(TAGS.iter()).find(|(file, _)| file.path == path)?;
    if ![Method::GET, Method::HEAD].contains(method) {
        return Some(Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD")));
    }
    let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| names(tags, tag));
    let mut response = if is_known { Response::new(Body::empty()) } else { Response::new(Body::full(file.content)) };
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fields = response.headers_mut();
    fields.insert(header::ETAG, tag.clone());
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    fields.extend(FIELDS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    Some(Ok(response))
}

/// Returns true if `If-None-Match` names the tag (RFC 9110 section 13.1.2).
fn names(tags: &HeaderValue, tag: &HeaderValue) -> bool {
    let Ok(tags) = tags.to_str() else { return false };
    tags.split(',').map(str::trim).any(|listed| listed == "*" || listed.strip_prefix("W/").unwrap_or(listed) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let tag = HeaderValue::from_static("\"ab\"");
        for (tags, expected) in
            [("\"ab\"", true), ("\"x\", W/\"ab\"", true), ("*", true), ("\"abc\"", false), ("ab", false), ("", false)]
        {
            assert_eq!(names(&HeaderValue::from_static(tags), &tag), expected, "{tags}");
        }
        assert!(TAGS.iter().all(|tag| tag.len() == 18) && TAGS[0] != TAGS[1]);
    }
}
