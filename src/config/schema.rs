//! The JSON Schema of `gateway.toml`, for editors and linters: from the keys that the reader looks for, each with the
//! comment of the reference.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::config::document::record::{Record, without_indexes};
use crate::config::document::shape::Shape;

const REFERENCE: &str = include_str!("../../gateway.toml");

/// The keys of this table have the values of `[cors]` if it omits them.
const INHERITS: &str = "route[].cors.";

/// A number, at least one unit, and nothing else at the start. The reader knows more.
const DURATION: &str = "^[0-9].*[A-Za-z:]";
const SIZE: &str = "^[0-9.]+ *[A-Za-z]+$";

/// `records`: every key that exists.
pub(super) fn schema(records: &[Record]) -> Json {
    let nodes = records.iter().map(|record| (without_indexes(&record.key), record)).collect();
    let schema = Schema { nodes, comments: comments() };
    let mut root = schema.object("");
    let Some(object) = root.as_object_mut() else { return root };
    object.insert("$schema".to_owned(), "http://json-schema.org/draft-07/schema#".into());
    object.insert("title".to_owned(), "gateway.toml".into());
    object.insert("description".to_owned(), "The configuration of bearward.".into());
    object.insert("definitions".to_owned(), definitions());
    root
}

/// The values that are outside of the file.
fn definitions() -> Json {
    json!({
        "variable": {
            "type": "object",
            "description": "The text of an environment variable, as if it were written here.",
            "properties": {
                "env": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "description": "Name of the variable." },
                "default": { "description": "The value if the variable is not set." },
            },
            "required": ["env"],
            "additionalProperties": false,
        },
        "credential": {
            "type": "object",
            "description": "A file that systemd passes to the gateway.",
            "properties": {
                "credential": { "type": "string", "pattern": "^[^/]+$", "description": "Name of the credential." },
            },
            "required": ["credential"],
            "additionalProperties": false,
        },
    })
}

struct Schema<'r> {
    /// By the key without indexes.
    nodes: BTreeMap<String, &'r Record>,
    comments: BTreeMap<String, String>,
}

impl Schema<'_> {
    /// The table of which all keys begin with `prefix`.
    fn object(&self, prefix: &str) -> Json {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (key, record) in self.nodes.range(prefix.to_owned()..) {
            let Some(name) = key.strip_prefix(prefix) else { break };
            if name.contains('.') {
                continue;
            }
            if record.is_required {
                required.push(name);
            }
            properties.insert(name.to_owned(), self.property(key, record));
        }
        let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            object["required"] = required.into();
        }
        object
    }

    fn property(&self, key: &str, record: &Record) -> Json {
        let mut property = match record.shape.as_deref() {
            Some(Shape::Table) => self.object(&format!("{key}.")),
            Some(Shape::Tables) => json!({ "type": "array", "items": self.object(&format!("{key}[].")) }),
            Some(shape) => json!({ "anyOf": self.forms(key, shape) }),
            None => json!({}),
        };
        if let Some(comment) = self.comments.get(key) {
            property["description"] = comment.as_str().into();
        }
        let has_default = record.span.is_none() && !key.starts_with(INHERITS);
        if has_default && let Some(default) = &record.value {
            property["default"] = default.clone();
        }
        property
    }

    /// The forms of a value, and those that are outside of the file.
    fn forms(&self, key: &str, shape: &Shape) -> Vec<Json> {
        let shapes = match shape {
            Shape::Any(shapes) => shapes.as_slice(),
            shape => std::slice::from_ref(shape),
        };
        let mut forms: Vec<Json> = shapes.iter().map(|shape| self.form(key, shape)).collect();
        if shapes.iter().any(|shape| !matches!(shape, Shape::List(_) | Shape::Some(_) | Shape::Table)) {
            forms.push(json!({ "$ref": "#/definitions/variable" }));
        }
        if shapes.contains(&Shape::Path) {
            forms.push(json!({ "$ref": "#/definitions/credential" }));
        }
        forms
    }

    fn form(&self, key: &str, shape: &Shape) -> Json {
        match shape {
            Shape::Boolean => json!({ "type": "boolean" }),
            Shape::Whole => json!({ "type": "integer" }),
            Shape::Integer(range) => json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() }),
            Shape::Duration(_) => json!({ "type": "string", "pattern": DURATION }),
            Shape::Size(_) => json!({ "type": "string", "pattern": SIZE }),
            Shape::Choice(names) => json!({ "type": "string", "enum": names }),
            Shape::Path => json!({ "type": "string", "minLength": 1 }),
            Shape::Text => json!({ "type": "string" }),
            Shape::Pattern(pattern) => json!({ "type": "string", "pattern": pattern }),
            Shape::List(of) => json!({ "type": "array", "items": self.item(key, of) }),
            Shape::Some(of) => json!({ "type": "array", "items": self.item(key, of), "minItems": 1 }),
            Shape::Table | Shape::Tables => self.object(&format!("{key}.")),
            Shape::Any(_) => json!({ "anyOf": self.forms(key, shape) }),
        }
    }

    fn item(&self, key: &str, of: &Shape) -> Json {
        match of {
            Shape::Table => self.form(key, of),
            of => json!({ "anyOf": self.forms(key, of) }),
        }
    }
}

/// The comment above each key and table of the reference.
fn comments() -> BTreeMap<String, String> {
    let mut comments: BTreeMap<String, String> = BTreeMap::new();
    let mut table = String::new();
    let mut comment = Vec::new();
    for line in REFERENCE.lines() {
        let text = line.strip_prefix("#     ").or_else(|| line.strip_prefix("# ")).unwrap_or(line);
        let name = text.split_once(" = ").map_or("", |(name, _)| name);
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_key = !name.is_empty() && name.bytes().all(is_word);
        let key = if text.starts_with('[') {
            table = path_of(text);
            table.trim_end_matches("[]").to_owned()
        } else if is_key && table.is_empty() {
            name.to_owned()
        } else if is_key {
            format!("{table}.{name}")
        } else {
            match line.strip_prefix("# ") {
                Some(more) => comment.push(more),
                None => comment.clear(),
            }
            continue;
        };
        // Further examples of a key have no comment of their own.
        let text = std::mem::take(&mut comment).join("\n");
        if !text.is_empty() {
            comments.entry(key).or_insert(text);
        }
    }
    comments
}

/// `[[route.claim]]` → `route[].claim[]`, as in the keys of the reader.
fn path_of(header: &str) -> String {
    let name = header.trim_matches(['[', ']']);
    let lists = ["listener", "upstream", "issuer", "provider", "event_stream", "route", "rate"];
    let mut path = match name.split_once('.') {
        Some((first, rest)) if lists.contains(&first) => format!("{first}[].{rest}"),
        _ => name.to_owned(),
    };
    if header.starts_with("[[") {
        path.push_str("[]");
    }
    path
}
