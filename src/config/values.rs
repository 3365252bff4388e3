//! The configuration in force: every key with its value, and where the value comes from.
//!
//! It contains no secret: the keys of secrets name files, variables and credentials.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use crate::config::document::outside::{Outside, OutsideValues};
use crate::config::document::record::Record;
use crate::config::document::sources::Sources;
use crate::config::restart;

/// The tables and keys at the top of `gateway.toml`, in its order.
const ORDER: [&str; 30] = [
    "include",
    "watch",
    "workers",
    "listener",
    "acme",
    "upstream",
    "tokens",
    "store",
    "issuer",
    "provider",
    "event_stream",
    "route",
    "token_exchange",
    "maintenance",
    "rate",
    "identity",
    "login",
    "oauth",
    "sign_in",
    "cors",
    "https",
    "forwarding",
    "forward_auth",
    "admin",
    "access_log",
    "trace",
    "audit",
    "throttle",
    "timeouts",
    "limits",
];

/// Column at which the sources of values begin, unless the value is longer.
const SOURCE_COLUMN: usize = 60;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    Default,
    File {
        file: Arc<str>,
        line: usize,
    },
    /// `{ env = "NAME" }` in this line.
    Environment {
        name: String,
        file: Arc<str>,
        line: usize,
    },
    /// `{ credential = "NAME" }` in this line.
    Credential {
        name: String,
        file: Arc<str>,
        line: usize,
    },
}

/// A line of a file.
pub(super) struct FilePlace<'o> {
    file: &'o str,
    pub(super) line: usize,
}

impl fmt::Display for FilePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// For example `route[1].path`.
    pub key: String,
    /// `None` if the key is not set and has no default.
    pub value: Option<Json>,
    /// `None` if it is a default, as most are.
    written: Option<Box<Written>>,
    /// The value in the file, which requires a restart.
    pub pending: Option<Box<Setting>>,
}

/// Where a value was written, and what of it is not shown.
#[derive(Clone, Debug)]
struct Written {
    source: ValueSource,
    /// Differs if the queries of URLs differ, which the value does not show.
    query: u64,
}

/// Two settings are equal if they have the same effect, wherever their values come from.
impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.has_value_of(other)
    }
}

/// All keys with their values, in the order of `gateway.toml`. A copy shares them: they take some KB for each route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Arc<Vec<Setting>>);

impl Values {
    pub(super) fn new(records: Vec<Record>, sources: &Sources, outside: &OutsideValues) -> Self {
        let mut settings: Vec<_> = records.into_iter().filter(|record| !record.is_table).collect();
        // Stable: the keys of a table stay in the order in which they were read.
        settings.sort_by_cached_key(|record| rank(&record.key));
        let settings = settings.into_iter().map(|record| Setting::new(record, sources, outside));
        Values(Arc::new(settings.collect()))
    }

    pub fn all(&self) -> &[Setting] {
        &self.0
    }

    /// What is in force after a reload that has read `next`. Values that require a restart stay, with the new ones
    /// beside them. `keeps_listeners`: all listeners stay as they are.
    pub(crate) fn reloaded(&self, next: &Values, keeps_listeners: bool) -> Values {
        let [old_by_key, next_by_key] = [self, next].map(Values::by_key);
        let stays = |key: &str| requires_restart(key, keeps_listeners);
        let after = |next: &Setting| match old_by_key.get(next.key.as_str()) {
            Some(old) => Setting::clone(old).after_reload(next, stays(&next.key)),
            None => Setting::absent(next.key.clone()).after_reload(next, stays(&next.key)),
        };
        let mut settings: Vec<Setting> = next.0.iter().map(after).collect();
        let is_gone = |old: &&Setting| stays(&old.key) && !next_by_key.contains_key(old.key.as_str());
        let gone = self.0.iter().filter(is_gone).filter(|old| old.value.is_some()).cloned();
        settings.extend(gone.map(|old| Setting { pending: Some(Box::new(Setting::absent(old.key.clone()))), ..old }));
        settings.sort_by_cached_key(|setting| rank(&setting.key));
        Values(Arc::new(settings))
    }

    fn by_key(&self) -> HashMap<&str, &Setting> {
        self.0.iter().map(|setting| (setting.key.as_str(), setting)).collect()
    }

    /// For programs.
    pub fn json(&self) -> Json {
        json!({ "settings": self.0.iter().map(Setting::json).collect::<Vec<_>>() })
    }

    /// For people: one line for each key, as in `gateway.toml`, with its source as a comment.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut table = None;
        for setting in self.0.iter() {
            let own = table_of(&setting.key);
            if table.is_some_and(|table| table != own && setting.key.contains('.')) {
                text.push('\n');
            }
            table = Some(own);
            let line = match &setting.value {
                Some(value) => format!("{} = {value}", setting.key),
                None => format!("# {} is not set", setting.key),
            };
            let _ = writeln!(text, "{line:SOURCE_COLUMN$} # {}", setting.source().text());
        }
        text
    }
}

impl Setting {
    fn new(record: Record, sources: &Sources, outside: &OutsideValues) -> Self {
        let source = ValueSource::of(record.span.as_ref(), sources, outside);
        let (value, query) = record.value.map(without_query).unzip();
        let query = query.unwrap_or_default();
        let written = (source != ValueSource::Default).then(|| Box::new(Written { source, query }));
        Setting { key: record.key, value, written, pending: None }
    }

    fn absent(key: String) -> Self {
        Setting { key, value: None, written: None, pending: None }
    }

    /// Where the value comes from.
    pub fn source(&self) -> &ValueSource {
        self.written.as_ref().map_or(&ValueSource::Default, |written| &written.source)
    }

    fn query(&self) -> u64 {
        self.written.as_ref().map_or(0, |written| written.query)
    }

    fn after_reload(self, next: &Setting, stays: bool) -> Setting {
        if stays && !self.has_value_of(next) {
            Setting { pending: Some(Box::new(Setting { pending: None, ..next.clone() })), ..self }
        } else {
            next.clone()
        }
    }

    /// Returns true if both have the same effect.
    pub(super) fn has_value_of(&self, other: &Setting) -> bool {
        (&self.value, self.query()) == (&other.value, other.query())
    }

    fn json(&self) -> Json {
        let mut object = json!({
            "key": self.key,
            "origin": self.source().json(),
            "reloadable": restart::is_reloadable(&self.key, self.value.as_ref()),
        });
        if let Some(value) = &self.value {
            object["value"] = value.clone();
        }
        if let Some(pending) = &self.pending {
            object["pending"] = json!({ "origin": pending.source().json() });
            if let Some(value) = &pending.value {
                object["pending"]["value"] = value.clone();
            }
        }
        object
    }
}

impl ValueSource {
    fn of(span: Option<&Range<usize>>, sources: &Sources, outside: &OutsideValues) -> Self {
        if span.is_none() {
            return ValueSource::Default;
        }
        let located = sources.locate(span);
        let file = located.file.clone();
        let line = located.line();
        match outside.at(span) {
            Some(Outside::Variable { name, .. }) => ValueSource::Environment { name: name.clone(), file, line },
            Some(Outside::Credential { name }) => ValueSource::Credential { name: name.clone(), file, line },
            _ => ValueSource::File { file, line },
        }
    }

    /// `None` for a default.
    pub(super) fn place(&self) -> Option<FilePlace<'_>> {
        match self {
            ValueSource::Default => None,
            ValueSource::File { file, line }
            | ValueSource::Environment { file, line, .. }
            | ValueSource::Credential { file, line, .. } => Some(FilePlace { file, line: *line }),
        }
    }

    fn json(&self) -> Json {
        match self {
            ValueSource::Default => json!({ "kind": "default" }),
            ValueSource::File { file, line } => json!({ "kind": "file", "file": &**file, "line": line }),
            ValueSource::Environment { name, file, line } => {
                json!({ "kind": "environment", "name": name, "file": &**file, "line": line })
            }
            ValueSource::Credential { name, file, line } => {
                json!({ "kind": "credential", "name": name, "file": &**file, "line": line })
            }
        }
    }

    fn text(&self) -> String {
        let Some(place) = self.place() else { return "default".to_owned() };
        match self {
            ValueSource::Environment { name, .. } => format!("${name}, {place}"),
            ValueSource::Credential { name, .. } => format!("credential {name}, {place}"),
            ValueSource::File { .. } | ValueSource::Default => place.to_string(),
        }
    }
}

/// A value as it is shown: the query of a URL may have a secret. Also returns a number for what is hidden.
fn without_query(value: Json) -> (Json, u64) {
    match value {
        Json::String(text) => match text.split_once("://").and_then(|_| text.split_once('?')) {
            Some((url, query)) => (format!("{url}?…").into(), hash(&query)),
            None => (text.into(), 0),
        },
        Json::Array(items) => {
            let (items, queries): (Vec<_>, Vec<_>) = items.into_iter().map(without_query).unzip();
            let is_hidden = queries.iter().any(|query| *query != 0);
            (items.into(), if is_hidden { hash(&queries) } else { 0 })
        }
        value => (value, 0),
    }
}

fn hash(hidden: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    hidden.hash(&mut hasher);
    hasher.finish()
}

/// Returns true if a change of this key waits for a restart. `keeps_listeners`: those of all listeners do.
pub(super) fn requires_restart(key: &str, keeps_listeners: bool) -> bool {
    match table_of(key) {
        "listener" => keeps_listeners,
        _ => !restart::is_reloadable(key, None),
    }
}

/// Returns true for a table or key at the top of `gateway.toml`. `value`: tells a table from a key of another program.
pub(super) fn is_top_level(name: &str, value: &DeValue<'_>) -> bool {
    let is_no_table = matches!(name, "include" | "watch" | "workers");
    ORDER.contains(&name) && (is_no_table || value.is_table() || value.is_array())
}

fn rank(key: &str) -> usize {
    ORDER.iter().position(|name| *name == table_of(key)).unwrap_or_default()
}

/// `route[1].path` → `route`.
pub(super) fn table_of(key: &str) -> &str {
    key.split(['.', '[']).next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_names_every_table() {
        let keys = crate::config::keys();
        let tables: std::collections::BTreeSet<&str> = keys.iter().map(|key| table_of(key)).collect();
        assert_eq!(tables, ORDER.into_iter().collect());
    }

    #[test]
    fn a_value_that_requires_a_restart_stays_in_force() {
        let setting =
            |key: &str, value: Option<u64>| Setting { value: value.map(Json::from), ..Setting::absent(key.to_owned()) };
        let values = |settings: Vec<Setting>| Values(Arc::new(settings));
        let old = values(vec![setting("workers", Some(1)), setting("listener[1].address", Some(7))]);
        let next = values(vec![
            setting("workers", Some(2)),
            setting("listener[0].proxy_protocol", Some(3)),
            setting("route[0].path", Some(4)),
        ]);
        let now = old.reloaded(&next, true);
        let rows: Vec<_> = now
            .0
            .iter()
            .map(|setting| {
                let pending = setting.pending.as_ref().map(|pending| pending.value.clone());
                (setting.key.as_str(), setting.value.clone(), pending)
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("workers", Some(1.into()), Some(Some(2.into()))),
                ("listener[0].proxy_protocol", None, Some(Some(3.into()))),
                ("listener[1].address", Some(7.into()), Some(None)),
                ("route[0].path", Some(4.into()), None),
            ]
        );
        assert_eq!(now.reloaded(&old, false).0.iter().find(|setting| setting.pending.is_some()), None);
    }
}
