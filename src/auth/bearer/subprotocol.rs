//! A token among the subprotocols of a WebSocket (RFC 6455 section 11.3.4). Besides the URL, a browser lets a page set
//! nothing else on a WebSocket handshake.
//!
//! Two forms are in use: `bearer, <token>`, because a JWT has only characters that a subprotocol may have, and the form
//! of Kubernetes, `base64url.bearer.authorization.<anything>.<token in base64url>`.

use http::{HeaderMap, HeaderValue, header};

use crate::protocols::http::field_list;

/// The gateway selects this subprotocol in the response if the upstream selected none: a browser closes a WebSocket
/// that requested subprotocols and got none.
pub const MARKER: &str = "bearer";
const ENCODED: &[u8] = b"base64url.bearer.authorization.";

pub(super) enum SubprotocolEntry<'h> {
    Marker,
    /// The entry after the marker. Empty if the marker is the last one.
    Token(&'h [u8]),
    Encoded(&'h [u8]),
    Other(&'h [u8]),
}

/// The entries of all fields, in order.
pub(super) fn entries(headers: &HeaderMap) -> Vec<SubprotocolEntry<'_>> {
    let mut items = field_list::items(headers, &header::SEC_WEBSOCKET_PROTOCOL);
    let mut entries = Vec::new();
    while let Some(item) = items.next() {
        if item == MARKER.as_bytes() {
            entries.push(SubprotocolEntry::Marker);
            entries.push(SubprotocolEntry::Token(items.next().unwrap_or_default()));
        } else if item.starts_with(ENCODED) {
            entries.push(SubprotocolEntry::Encoded(item.rsplit(|byte| *byte == b'.').next().unwrap_or_default()));
        } else {
            entries.push(SubprotocolEntry::Other(item));
        }
    }
    entries
}

/// Removes the tokens and the marker. Returns true if the marker was there.
pub(super) fn remove(headers: &mut HeaderMap) -> bool {
    let all = entries(headers);
    if all.iter().all(|entry| matches!(entry, SubprotocolEntry::Other(_))) {
        return false;
    }
    let has_marker = all.iter().any(|entry| matches!(entry, SubprotocolEntry::Marker));
    let others: Vec<&[u8]> = all
        .iter()
        .filter_map(|entry| if let SubprotocolEntry::Other(item) = entry { Some(*item) } else { None })
        .collect();
    // Parts of a valid header value are a valid header value.
    let rest = if others.is_empty() { None } else { HeaderValue::from_bytes(&others.join(&b", "[..])).ok() };
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Some(rest) = rest {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, rest);
    }
    has_marker
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_and_removes_tokens_among_subprotocols() {
        for (fields, tokens, rest, marked) in [
            (&["bearer, a.b.c"][..], &["a.b.c"][..], None, true),
            (&["chat, bearer, a.b.c, v2"], &["a.b.c"], Some("chat, v2"), true),
            (&["bearer", "a.b.c", "chat"], &["a.b.c"], Some("chat"), true),
            (&["chat,bearer"], &[""], Some("chat"), true),
            (&["bearer, a, bearer, b"], &["a", "b"], None, true),
            (&["bearer, bearer"], &["bearer"], None, true),
            (&["base64url.bearer.authorization.k8s.io.YWJj, v4"], &["base64:YWJj"], Some("v4"), false),
            (&["base64url.bearer.authorization."], &["base64:"], None, false),
            (&["chat, Bearer, x"], &[], Some("chat, Bearer, x"), false),
        ] {
            let values = fields.iter().map(|field| (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(field)));
            let mut headers: HeaderMap = values.collect();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let found = entries(&headers).into_iter().filter_map(|entry| match entry {
                SubprotocolEntry::Token(token) => Some(text(token)),
                SubprotocolEntry::Encoded(token) => Some(format!("base64:{}", text(token))),
                SubprotocolEntry::Marker | SubprotocolEntry::Other(_) => None,
            });
            assert_eq!(found.collect::<Vec<_>>(), tokens, "{fields:?}");
            assert_eq!(remove(&mut headers), marked, "{fields:?}");
            let left = headers.get(header::SEC_WEBSOCKET_PROTOCOL).map(|value| text(value.as_bytes()));
            assert_eq!(left.as_deref(), rest, "{fields:?}");
        }
    }
}
