//! The changes that a reload would make: the values in force compared with those of the files.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value as Json, json};

use crate::config::values::{Setting, Values, requires_restart, table_of};

/// One key, or a table of a list that is new or gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// For example `route[1].scopes`, or `route[1]` for a whole table.
    pub key: String,
    /// Which table of a list it is, such as `GET /orders/`.
    pub item: Option<String>,
    pub kind: Kind,
    /// Where the new value is, such as `gateway.toml:7`. `None` if it is in no file.
    pub place: Option<String>,
    pub requires_restart: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `None`: not set, and there is no default.
    Changed {
        from: Option<Json>,
        to: Option<Json>,
    },
    Added,
    Removed,
    /// The tables of a list have another order.
    Reordered,
    /// A file that the key names has another content.
    Content,
}

impl Change {
    /// `key`: names a file, or has keys that do.
    pub fn content(key: impl Into<String>) -> Self {
        Change { key: key.into(), item: None, kind: Kind::Content, place: None, requires_restart: false }
    }

    /// The table at the top of the file in which the key is.
    pub fn table(&self) -> &str {
        table_of(&self.key)
    }

    pub fn json(&self) -> Json {
        let mut object = json!({ "key": self.key, "requiresRestart": self.requires_restart });
        let mut set = |name: &str, value: Option<Json>| {
            if let Some(value) = value {
                object[name] = value;
            }
        };
        set("item", self.item.as_deref().map(Json::from));
        set("place", self.place.as_deref().map(Json::from));
        match &self.kind {
            Kind::Changed { from, to } => {
                set("change", Some("changed".into()));
                set("from", from.clone());
                set("to", to.clone());
            }
            Kind::Added => set("change", Some("added".into())),
            Kind::Removed => set("change", Some("removed".into())),
            Kind::Reordered => set("change", Some("reordered".into())),
            Kind::Content => set("change", Some("content".into())),
        }
        object
    }
}

impl Values {
    /// The changes from these values, which are in force, to `next`. Tables of a list are compared with those of the
    /// same name, so that a new one in the middle of the file is the only change. `keeps_listeners`: as for
    /// [`Values::reloaded`].
    pub fn changes(&self, next: &Values, keeps_listeners: bool) -> Vec<Change> {
        let old = tables(self);
        let next = tables(next);
        let mut changes = Vec::new();
        let mut reordered = Vec::new();
        let mut places = Places::of(&old);
        for table in &next {
            match places.take(table) {
                Some(Taken { place, is_in_order }) => {
                    if !is_in_order && !reordered.contains(&table.name) {
                        reordered.push(table.name);
                    }
                    changes.extend(old[place].changes(table, keeps_listeners));
                }
                None => changes.push(table.whole(Kind::Added, keeps_listeners)),
            }
        }
        changes.extend(places.rest().into_iter().map(|place| old[place].whole(Kind::Removed, keeps_listeners)));
        changes.extend(reordered.into_iter().map(|name| Change {
            key: name.to_owned(),
            item: None,
            kind: Kind::Reordered,
            place: None,
            requires_restart: requires_restart(name, keeps_listeners),
        }));
        changes
    }
}

/// Where the tables in force are, by what tells them from the others of their list.
struct Places<'t> {
    by_item: HashMap<(&'t str, Option<&'t str>), VecDeque<usize>>,
    /// The last place that was taken, by the name of the list.
    last: HashMap<&'t str, usize>,
}

struct Taken {
    place: usize,
    /// No table of the list was taken from a later place.
    is_in_order: bool,
}

impl<'t> Places<'t> {
    fn of(tables: &'t [Table<'t>]) -> Self {
        let mut by_item: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (place, table) in tables.iter().enumerate() {
            by_item.entry((table.name, table.item.as_deref())).or_default().push_back(place);
        }
        Places { by_item, last: HashMap::new() }
    }

    /// The first table like this one that was not taken.
    fn take(&mut self, table: &'t Table<'t>) -> Option<Taken> {
        let place = self.by_item.get_mut(&(table.name, table.item.as_deref()))?.pop_front()?;
        let last = self.last.entry(table.name).or_default();
        let is_in_order = place >= *last;
        *last = place.max(*last);
        Some(Taken { place, is_in_order })
    }

    /// The tables that were not taken, in their order.
    fn rest(self) -> Vec<usize> {
        let mut rest: Vec<_> = self.by_item.into_values().flatten().collect();
        rest.sort_unstable();
        rest
    }
}

/// A table at the top of the file, or one of a list.
struct Table<'v> {
    /// For example `route[1]`; empty for the keys above all tables.
    key: &'v str,
    /// For example `route`.
    name: &'v str,
    item: Option<String>,
    /// By what follows `key`.
    settings: BTreeMap<&'v str, &'v Setting>,
}

fn tables(values: &Values) -> Vec<Table<'_>> {
    let (mut tables, mut by_key): (Vec<Table<'_>>, HashMap<&str, usize>) = Default::default();
    // What only waits for a restart is not in force.
    for setting in values.all().iter().filter(|setting| setting.value.is_some() || setting.pending.is_none()) {
        let (key, rest) = setting.key.split_once('.').map_or(("", setting.key.as_str()), |(key, rest)| (key, rest));
        let index = *by_key.entry(key).or_insert_with(|| {
            let name = key.split('[').next().unwrap_or(key);
            tables.push(Table { key, name, item: None, settings: BTreeMap::new() });
            tables.len() - 1
        });
        if let Some(table) = tables.get_mut(index) {
            table.settings.insert(rest, setting);
        }
    }
    // A table of a list has at least one value. Without one, the whole table waits for a restart.
    tables.retain(|table| !table.key.ends_with(']') || table.settings.values().any(|setting| setting.value.is_some()));
    tables.iter_mut().for_each(Table::find_item);
    tables
}

impl Table<'_> {
    /// What tells a table of a list from the others.
    fn find_item(&mut self) {
        let text = |key: &str| {
            let value = self.settings.get(key).and_then(|setting| setting.value.as_ref());
            value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        self.item = match self.name {
            _ if !self.key.ends_with(']') => None,
            "route" => {
                let methods = self.settings.get("methods").and_then(|setting| setting.value.as_ref()?.as_array());
                let methods: Vec<&str> = methods.into_iter().flatten().filter_map(Json::as_str).collect();
                let path = format!("{}{}", text("host").unwrap_or_default(), text("path").unwrap_or_default());
                Some(format!("{} {path}", methods.join(",")).trim().to_owned())
            }
            "upstream" | "provider" | "event_stream" => text("name"),
            "issuer" => text("issuer"),
            "listener" => text("address"),
            _ => text("name").zip(text("per")).map(|(name, per)| format!("{name} ({per})")),
        };
    }

    fn whole(&self, kind: Kind, keeps_listeners: bool) -> Change {
        let key = self.key.to_owned();
        let item = self.item.clone();
        let places = self.settings.values().filter_map(|setting| setting.source().place());
        let first = if kind == Kind::Added { places.min_by_key(|place| place.line) } else { None };
        let place = first.map(|place| place.to_string());
        let requires_restart = self.settings.values().any(|setting| requires_restart(&setting.key, keeps_listeners));
        Change { key, item, kind, place, requires_restart }
    }

    fn changes(&self, next: &Table<'_>, keeps_listeners: bool) -> Vec<Change> {
        let gone = self.settings.keys().filter(|key| !next.settings.contains_key(*key));
        let mut changes = Vec::new();
        for key in next.settings.keys().chain(gone) {
            let [from, to] = [self, next].map(|table| table.settings.get(key));
            let is_same = match (from, to) {
                (Some(from), Some(to)) => from.has_value_of(to),
                (from, to) => from.or(to).is_none_or(|setting| setting.value.is_none()),
            };
            if is_same {
                continue;
            }
            let place = to.and_then(|setting| Some(setting.source().place()?.to_string()));
            let [from, to] = [from, to].map(|setting| setting.and_then(|setting| setting.value.clone()));
            let key = if next.key.is_empty() { (*key).to_owned() } else { format!("{}.{key}", next.key) };
            let requires_restart = requires_restart(&key, keeps_listeners);
            let kind = Kind::Changed { from, to };
            changes.push(Change { key, item: next.item.clone(), kind, place, requires_restart });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{self, Probe};

    const BASE: &str =
        "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n[[route]]\npath = \"/a\"\n[[route]]\npath = \"/b\"\n";

    fn values(text: &str) -> Values {
        config::parse(text, Path::new(""), Probe::None).unwrap_or_else(|errors| panic!("{errors}")).values
    }

    #[test]
    fn a_changed_key_has_both_values() {
        let next = format!("workers = 3\n{BASE}scopes = [\"x\"]\n[limits]\nuri_size = \"4KiB\"\n");
        let changes: Vec<Json> = values(BASE).changes(&values(&next), false).iter().map(Change::json).collect();
        let changed = |key: &str, line: usize, from: Json, to: Json| {
            let place = format!("gateway.toml:{line}");
            json!({ "key": key, "change": "changed", "from": from, "to": to, "place": place })
        };
        let mut expected = vec![
            changed("workers", 1, json!(0), json!(3)),
            changed("route[1].scopes", 8, json!([]), json!(["x"])),
            changed("limits.uri_size", 10, json!("8KiB"), json!("4KiB")),
        ];
        for (change, expected) in changes.iter().zip(&mut expected) {
            expected["requiresRestart"] = change["requiresRestart"].clone();
        }
        expected[1]["item"] = json!("/b");
        assert_eq!(changes, expected);
        assert_eq!((&changes[0]["requiresRestart"], &changes[1]["requiresRestart"]), (&json!(true), &json!(false)));
        assert_eq!(values(BASE).changes(&values(BASE), false), Vec::new());
    }

    #[test]
    fn a_new_table_of_a_list_moves_the_others_without_a_change() {
        let next = BASE.replace("[[route]]\npath = \"/a\"\n", "[[route]]\npath = \"/\"\nmethods = [\"GET\"]\n");
        let changes = values(BASE).changes(&values(&next), false);
        let rows: Vec<_> =
            changes.iter().map(|change| (change.key.as_str(), change.item.as_deref(), &change.kind)).collect();
        assert_eq!(rows, [("route[0]", Some("GET /"), &Kind::Added), ("route[0]", Some("/a"), &Kind::Removed),]);
    }
}
