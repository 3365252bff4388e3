//! All keys that were read, in this order, each with its form and its value.

use std::ops::Range;

use serde_json::Value as Json;
use toml::de::DeValue;

use crate::config::document::shape::Shape;

/// A key that the reader looked for.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// For example `route[3].path`.
    pub(crate) key: String,
    /// For the schema. `None` while a file is read: the forms of a large one would take as much memory as its values.
    pub(crate) shape: Option<Box<Shape>>,
    /// The value names a file, or several.
    pub(crate) is_path: bool,
    pub(crate) is_required: bool,
    /// The value in force. `None` if the key is not set and has no default.
    pub(crate) value: Option<Json>,
    /// Where the file sets it.
    pub(crate) span: Option<Range<usize>>,
    /// The key stands for a table, so its keys have the values.
    pub(crate) is_table: bool,
}

#[derive(Default)]
pub(crate) struct Records {
    all: Vec<Record>,
    keeps_shapes: bool,
}

impl Records {
    pub(super) fn with_shapes() -> Self {
        Records { keeps_shapes: true, ..Records::default() }
    }

    /// Returns the place of the record.
    pub(super) fn add(&mut self, key: String, shape: Shape, written: Option<(&DeValue<'_>, Range<usize>)>) -> usize {
        let is_table = written.as_ref().map_or(shape.is_table(), |(value, _)| is_table(value, &shape));
        let (value, span) = written.map_or((None, None), |(value, span)| (json(value), Some(span)));
        let value = if is_table { None } else { value };
        let is_path = shape.is_path();
        let shape = self.keeps_shapes.then(|| Box::new(shape));
        self.all.push(Record { key, shape, is_path, is_required: false, value, span, is_table });
        self.all.len() - 1
    }

    pub(super) fn change(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.all.get_mut(place) {
            change(record);
        }
    }

    pub(crate) fn all(self) -> Vec<Record> {
        self.all
    }
}

fn is_table(value: &DeValue<'_>, shape: &Shape) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => *shape == Shape::Tables || items.iter().any(|item| item.get_ref().is_table()),
        _ => false,
    }
}

/// `None` for a table.
fn json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => number.as_str().into(),
        },
        DeValue::Float(number) => number.as_str().parse::<f64>().ok()?.into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => items.iter().filter_map(|item| json(item.get_ref())).collect(),
        DeValue::Table(_) => return None,
    })
}

/// `route[3].path` → `route[].path`. Digits in names stay: `limits.http2_resets`.
pub(crate) fn without_indexes(path: &str) -> String {
    let mut in_index = false;
    let keep = |character: &char| {
        in_index = *character == '[' || (in_index && *character != ']');
        !in_index || *character == '['
    };
    path.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_removed_and_digits_in_names_stay() {
        assert_eq!(without_indexes("route[13].rate[0].per"), "route[].rate[].per");
        assert_eq!(without_indexes("limits.http2_resets"), "limits.http2_resets");
    }
}
