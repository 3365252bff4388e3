//! Tells a page load, which can be redirected to a provider, and a form from every other request. Pure.
//!
//! `Accept` alone has misjudged requests of scripts in other gateways, so it counts only where the browser says nothing
//! better.

use http::header::{ACCEPT, UPGRADE};
use http::{HeaderMap, Method};

/// Returns true if the user sees the response: the browser loads a page with GET.
pub(super) fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    // A request to CONNECT or with Upgrade opens a WebSocket.
    if *method != Method::GET || headers.contains_key(UPGRADE) {
        return false;
    }
    // A page that is loaded ahead is shown later, or never.
    if has(headers, "sec-purpose", "prefetch") || has(headers, "purpose", "prefetch") {
        return false;
    }
    is_shown(headers)
}

/// Returns true if the user sees the response, and the browser has sent a form that a redirect would lose.
pub(super) fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::POST && !headers.contains_key(UPGRADE) && is_shown(headers)
}

/// Returns true if a page of another site has led the browser here. Also one of a sister domain.
pub(crate) fn is_of_other_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none")
}

/// Returns true if the browser says that it loads no page: an image of any page on the web, or what a script asks for.
pub(crate) fn is_part_of_page(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-mode").is_some_and(|mode| mode != "navigate")
}

fn is_shown(headers: &HeaderMap) -> bool {
    match headers.get("sec-fetch-mode") {
        // A frame cannot show the page of a provider.
        Some(mode) => mode == "navigate" && headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document"),
        None => has(headers, ACCEPT.as_str(), "text/html") && !headers.contains_key("x-requested-with"),
    }
}

fn has(headers: &HeaderMap, name: &str, part: &str) -> bool {
    let has = |text: &str| text.split([',', ';']).any(|listed| listed.trim().eq_ignore_ascii_case(part));
    headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(has))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_a_page_load_is_a_navigation() {
        let html = ("accept", "text/html,application/xhtml+xml;q=0.9");
        let navigate = ("sec-fetch-mode", "navigate");
        let document = ("sec-fetch-dest", "document");
        for (method, fields, expected) in [
            (Method::GET, &[navigate, document][..], true),
            (Method::GET, &[navigate, document, ("sec-fetch-site", "cross-site")], true),
            (Method::GET, &[html], true),
            (Method::GET, &[], false),
            (Method::GET, &[("accept", "*/*")], false),
            (Method::GET, &[("accept", "application/json")], false),
            (Method::GET, &[html, ("x-requested-with", "XMLHttpRequest")], false),
            (Method::GET, &[html, ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")], false),
            (Method::GET, &[navigate], false),
            (Method::GET, &[navigate, ("sec-fetch-dest", "iframe")], false),
            (Method::GET, &[navigate, document, ("sec-purpose", "prefetch")], false),
            (Method::GET, &[navigate, document, ("sec-purpose", "prefetch;prerender")], false),
            (Method::GET, &[html, ("purpose", "prefetch")], false),
            (Method::GET, &[html, ("upgrade", "websocket")], false),
            (Method::HEAD, &[navigate, document], false),
            (Method::POST, &[navigate, document], false),
            (Method::OPTIONS, &[html], false),
            (Method::CONNECT, &[html], false),
        ] {
            let field = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let headers = fields.iter().map(field).collect();
            assert_eq!(is_navigation(&method, &headers), expected, "{method} {fields:?}");
        }
        for (method, fields, expected) in [
            (Method::POST, &[navigate, document][..], true),
            (Method::POST, &[html], true),
            (Method::POST, &[navigate, ("sec-fetch-dest", "iframe")], false),
            (Method::POST, &[("sec-fetch-mode", "cors"), html], false),
            (Method::POST, &[html, ("x-requested-with", "XMLHttpRequest")], false),
            (Method::POST, &[html, ("upgrade", "websocket")], false),
            (Method::GET, &[navigate, document], false),
            (Method::PUT, &[html], false),
        ] {
            let field = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let headers = fields.iter().map(field).collect();
            assert_eq!(is_form(&method, &headers), expected, "{method} {fields:?}");
        }
    }
}
