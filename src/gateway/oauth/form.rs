//! The form of an OAuth call.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::protocols::http::{media_type, parameters};
use crate::types::reject::{Reason, Reject};

/// Parameters by name. No `Debug`, because some are tokens.
pub struct Form {
    parameters: BTreeMap<String, String>,
    /// `resource` is the only one that may be repeated (RFC 8707 section 2).
    resources: Vec<String>,
}

impl Form {
    pub fn read(headers: &HeaderMap, content: &[u8]) -> Result<Form, Reject> {
        let bad = |detail: &'static str| Reject::new(Reason::BadForm, detail);
        if !media_type::is(headers, "application/x-www-form-urlencoded") {
            return Err(bad("Content-Type is not application/x-www-form-urlencoded"));
        }
        let text = str::from_utf8(content).map_err(|_| bad("not UTF-8"))?;
        let (parameters, resources) = parameters::read_with_list(text, "resource").map_err(bad)?;
        Ok(Form { parameters, resources })
    }

    /// A parameter without a value counts as missing (RFC 6749 section 3.2).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn required(&self, name: &'static str) -> Result<&str, Reject> {
        self.get(name).ok_or_else(|| Reject::new(Reason::BadForm, format!("{name} is missing")))
    }
}
