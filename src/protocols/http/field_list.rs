//! Header fields that are lists with commas between (RFC 9110 section 5.6.1), however many lines they come in.

use http::{HeaderMap, HeaderName};

/// What stands between the commas, without the spaces around it; empty items as well.
pub fn items<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Is this one of the items? Upper and lower case are the same.
pub fn has(headers: &HeaderMap, name: &HeaderName, item: &str) -> bool {
    items(headers, name).any(|listed| listed.eq_ignore_ascii_case(item.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn an_item_is_found_in_any_line_and_is_not_a_part_of_another() {
        let mut headers = HeaderMap::new();
        for line in ["keep-alive , Upgrade", "", "x-close"] {
            headers.append(header::CONNECTION, HeaderValue::from_static(line));
        }
        assert!(has(&headers, &header::CONNECTION, "upgrade") && has(&headers, &header::CONNECTION, "keep-alive"));
        assert!(!has(&headers, &header::CONNECTION, "close") && !has(&headers, &header::TE, "upgrade"));
    }
}
