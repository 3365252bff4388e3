//! The parameters in the query of a call.

use std::collections::BTreeMap;

use http::Uri;

use crate::protocols::http::parameters;
use crate::types::reject::{Reason, Reject};

/// How many entries a list has if the call does not say it, and at most.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// The parameters that were not read yet.
pub(super) struct Query {
    left: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl Query {
    pub(super) fn read(uri: &Uri) -> Result<Self, Reject> {
        let left = parameters::read(uri.query().unwrap_or_default());
        let left = left.map_err(|error| Reject::new(Reason::BadParameter, error))?;
        Ok(Query { left, known: Vec::new() })
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.left.remove(name)
    }

    /// `limit`: how many entries the list has at most.
    pub(super) fn limit(&mut self) -> Result<usize, Reject> {
        self.number("limit", DEFAULT_LIMIT, MAX_LIMIT)
    }

    /// A number from 1 to `max`.
    pub(super) fn number(&mut self, name: &'static str, default: usize, max: usize) -> Result<usize, Reject> {
        let Some(text) = self.take(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| Reject::new(Reason::BadParameter, format!("{name}: expected a number from 1 to {max}")))
    }

    /// Rejects a parameter that the call does not know.
    pub(super) fn finish(self) -> Result<(), Reject> {
        if self.left.is_empty() {
            Ok(())
        } else {
            let known = self.known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { format!("one of {known}") };
            Err(Reject::new(Reason::BadParameter, format!("unknown parameter; expected {known}")))
        }
    }
}
