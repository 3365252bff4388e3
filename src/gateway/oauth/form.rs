//! Reads `application/x-www-form-urlencoded` strictly: a form that can be read in two ways is rejected. Pure.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::protocols::http::{media_type, path};
use crate::types::reject::{Reason, Reject};

/// Parameters by name. No `Debug`, because some are tokens.
pub(super) struct Form(BTreeMap<String, String>);

impl Form {
    pub(super) fn read(headers: &HeaderMap, content: &[u8]) -> Result<Form, Reject> {
        let bad = |detail: &'static str| Reject::new(Reason::BadForm, detail);
        if !media_type::is(headers, "application/x-www-form-urlencoded") {
            return Err(bad("Content-Type is not application/x-www-form-urlencoded"));
        }
        let text = str::from_utf8(content).map_err(|_| bad("not UTF-8"))?;
        let mut parameters = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                return Err(bad("an invalid percent-encoding"));
            };
            // RFC 6749 section 3.2: no parameter more than once.
            if parameters.insert(name, value).is_some() {
                return Err(bad("a parameter is repeated"));
            }
        }
        Ok(Form(parameters))
    }

    /// A parameter without a value counts as missing (RFC 6749 section 3.2).
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn required(&self, name: &'static str) -> Result<&str, Reject> {
        self.get(name).ok_or_else(|| Reject::new(Reason::BadForm, format!("{name} is missing")))
    }
}

pub(super) fn decode(text: &str) -> Option<String> {
    let is_encoding = |rest: &str| rest.get(..2).is_some_and(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if !text.split('%').skip(1).all(is_encoding) {
        return None;
    }
    let spaced = text.replace('+', " ");
    String::from_utf8(path::decode(spaced.as_bytes()).into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, String)>> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/x-www-form-urlencoded"));
        Form::read(&headers, text.as_bytes()).ok().map(|form| form.0.into_iter().collect())
    }

    #[test]
    fn a_form_has_exactly_one_reading() {
        let pairs = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>())
        };
        for (text, expected) in [
            ("", pairs(&[])),
            ("a=1&b=%41+%2B%3d&&c", pairs(&[("a", "1"), ("b", "A +="), ("c", "")])),
            ("a=b=c", pairs(&[("a", "b=c")])),
            ("%61=1", pairs(&[("a", "1")])),
            ("a=1&a=1", None),
            ("a=1&%61=2", None),
            ("a=%", None),
            ("a=%4", None),
            ("a=%4g", None),
            ("a=%+1", None),
            ("a=%ff", None),
            ("a=%é", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
