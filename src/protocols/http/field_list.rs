//! Header fields with a comma-separated list (RFC 9110 section 5.6.1), in one or several lines.

use http::{HeaderMap, HeaderName};

/// The items of a list without the spaces around them, empty items too.
pub fn items<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Returns true if `item` is in the list. The comparison ignores case.
pub fn contains(headers: &HeaderMap, name: &HeaderName, item: &str) -> bool {
    items(headers, name).any(|listed| listed.eq_ignore_ascii_case(item.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn an_item_is_found_in_any_line_and_only_as_a_whole() {
        let mut headers = HeaderMap::new();
        for line in ["keep-alive , Upgrade", "", "x-close"] {
            headers.append(header::CONNECTION, HeaderValue::from_static(line));
        }
        assert!(
            contains(&headers, &header::CONNECTION, "upgrade") && contains(&headers, &header::CONNECTION, "keep-alive")
        );
        assert!(!contains(&headers, &header::CONNECTION, "close") && !contains(&headers, &header::TE, "upgrade"));
    }
}
