//! The few pages of a sign-in. They show no text from outside and load nothing.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::protocols::http::body::Body;
use crate::protocols::http::challenges::REALM;
use crate::types::reject::Reject;

/// No `form-action`: browsers apply it to the redirect to the provider, too.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; base-uri 'none'; frame-ancestors 'none'");
const FIELDS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Why a sign-in failed, with a link to begin again.
pub(super) fn failed(reject: &Reject, again: Option<&str>) -> Response<Body> {
    let link = again.map(|path| format!("<p><a href=\"{path}\">Sign in again</a>")).unwrap_or_default();
    let message = reject.reason.message();
    let (first, rest) = message.split_at_checked(1).unwrap_or((message, ""));
    let content = format!("<p>{}{rest}.{link}", first.to_ascii_uppercase());
    let mut response = page(reject.reason.status(), "Sign-in failed", &content);
    if let Some(after) = reject.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    response
}

/// The user has sent a form without a session. The gateway does not keep its body: it would have to hold it for all who
/// are not signed in, and to send it again on a page of its own. `path`: where the user signs in.
pub(super) fn form_not_sent(reject: &Reject, path: &str) -> Response<Body> {
    let text = format!(
        "<p>You are not signed in, and your form was not sent. <a href=\"{path}\">Sign in</a>, and send it again."
    );
    let mut response = page(reject.reason.status(), "Not signed in", &text);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, REALM.clone());
    response
}

/// `path`: that of the sign-out.
pub(super) fn sign_out(path: &str) -> Response<Body> {
    let form = format!("<form method=\"post\" action=\"{path}\"><button>Sign out</button></form>");
    page(StatusCode::OK, "Sign out", &form)
}

pub(super) fn signed_out() -> Response<Body> {
    page(StatusCode::OK, "Signed out", "<p>You have signed out.")
}

fn page(status: StatusCode, title: &str, content: &str) -> Response<Body> {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><h1>{title}</h1>{content}</html>\n"
    );
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    response.headers_mut().extend(FIELDS);
    response
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;
    use crate::types::reject::Reason;

    #[test]
    fn a_page_has_no_text_from_outside() {
        let response = failed(&Reject::new(Reason::SignInFailed, "<script>"), Some("/oauth2/sign_in/main"));
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(response.headers()["content-security-policy"], POLICY);
        let size = response.body().size_hint().exact();
        let plain = failed(&Reject::new(Reason::SignInFailed, ""), Some("/oauth2/sign_in/main"));
        assert_eq!(size, plain.body().size_hint().exact(), "the detail is only for the log");
    }
}
