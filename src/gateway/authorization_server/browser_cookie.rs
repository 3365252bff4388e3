//! The cookie by which a browser shows that it began a request. A page that was made in another browser lacks it, and
//! so does a form that another site submits.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use crate::auth::bearer::session_cookie;
use crate::tokens::authorization::pending::{self, PendingRequest};

/// Maximum number of such cookies in one browser: one for each tab.
const MAX: usize = 8;

/// Returns true if this browser began the request.
pub(super) fn is_there(headers: &HeaderMap, pending: &PendingRequest) -> bool {
    session_cookie::only(headers, &pending.cookie_name()).is_some_and(|value| pending.is_of_browser(value))
}

/// `Set-Cookie` for a new request, and those that take older ones away if there are too many.
pub(super) fn set(headers: &HeaderMap, pending: &PendingRequest, value: &str) -> Option<Vec<HeaderValue>> {
    let mut fields = vec![session_cookie::set(&pending.cookie_name(), value, pending::LIFETIME)?];
    // The browser sends the oldest first (RFC 6265 section 5.4).
    let names: Vec<&str> = session_cookie::asks(headers).map(|(name, _)| name).collect();
    let surplus = (names.len() + 1).saturating_sub(MAX);
    fields.extend(names[..surplus.min(names.len())].iter().filter_map(|name| session_cookie::clear(name)));
    Some(fields)
}

/// Returns true if the browser sends no cookie at all.
pub(super) fn has_none(headers: &HeaderMap) -> bool {
    !headers.contains_key(COOKIE)
}
