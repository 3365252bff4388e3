//! One value of the file, and what it is read as: text, a number, a duration, a size, a list.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::config::document::error::{Fault, Place};
use crate::config::document::suggest;
use crate::config::document::table::{Reading, Table};
use crate::config::document::units::{
    DURATION_UNITS, SIZE_UNITS, no_unit, parse_duration, parse_size, spell_duration, spell_size,
};

pub(crate) struct Value<'a> {
    value: &'a DeValue<'a>,
    place: Place,
    reading: &'a Reading<'a>,
}

impl<'a> Value<'a> {
    pub(crate) fn new(value: &'a DeValue<'a>, place: Place, reading: &'a Reading<'a>) -> Self {
        Value { value, place, reading }
    }

    /// Records a fault about this value.
    pub(crate) fn wrong(&self, fault: Fault) {
        self.reading.record(fault.at(&self.place));
    }

    /// What a check said about this value: its result, or a fault that is recorded.
    pub(crate) fn accept<T>(&self, checked: Result<T, Fault>) -> Option<T> {
        checked.map_err(|fault| self.wrong(fault)).ok()
    }

    pub(crate) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    pub(crate) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        self.text_or("a string in quotes", "")
    }

    /// The string, or the fault that it is none: what was expected instead, and how to write it.
    fn text_or(&self, expected: &str, help: &str) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong(self.wrong_type(expected).help(help));
                None
            }
        }
    }

    fn wrong_type(&self, expected: &str) -> Fault {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        Fault::new(format!("wrong type: this is {found}"), format!("expected {expected}"))
    }

    /// A string that `parse` understands.
    pub(crate) fn parse<T>(&self, parse: impl FnOnce(&'a str) -> Result<T, Fault>) -> Option<T> {
        self.accept(parse(self.text()?))
    }

    /// A path; a relative one begins at the folder of the file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.parse(|text| match text {
            "" => Err(Fault::new("the path is empty", "expected the path of a file")),
            path => Ok(self.reading.base().join(path)),
        })
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(flag) => Some(*flag),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                self.wrong(self.wrong_type("true or false").help(format!("write {text} without quotes")));
                None
            }
            _ => {
                self.wrong(self.wrong_type("true or false"));
                None
            }
        }
    }

    /// A value that a claim can be compared with. Numbers with a fraction are not: they have several spellings.
    pub(crate) fn scalar(&self) -> Option<serde_json::Value> {
        match self.value {
            DeValue::String(text) => Some(text.as_ref().into()),
            DeValue::Boolean(flag) => Some((*flag).into()),
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix()).ok();
                if number.is_none() {
                    self.wrong(Fault::new("the number is out of range", "expected 64 bits"));
                }
                number.map(Into::into)
            }
            _ => {
                self.wrong(self.wrong_type("a string, a whole number, true or false"));
                None
            }
        }
    }

    pub(crate) fn whole(&self, range: RangeInclusive<usize>) -> Option<usize> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let DeValue::Integer(number) = self.value else {
            self.wrong(self.wrong_type(&expected));
            return None;
        };
        let number = usize::from_str_radix(number.as_str(), number.radix()).ok();
        let in_range = number.filter(|number| range.contains(number));
        if in_range.is_none() {
            self.wrong(Fault::new("the number is out of range", format!("expected {expected}")));
        }
        in_range
    }

    pub(crate) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        if let DeValue::Integer(number) = self.value {
            self.wrong(no_unit("a duration", number.as_str(), DURATION_UNITS));
            return None;
        }
        let text = self.text_or("a duration", "write it in quotes and with its unit, as \"30s\", \"15m\" or \"7d\"")?;
        let duration = self.accept(parse_duration(text))?;
        let [least, most] = [range.start(), range.end()].map(|end| spell_duration(*end));
        self.within(duration, &range, &least, &most)
    }

    pub(crate) fn size(&self, range: RangeInclusive<usize>) -> Option<usize> {
        if let DeValue::Integer(number) = self.value {
            self.wrong(no_unit("a size", number.as_str(), SIZE_UNITS));
            return None;
        }
        let text = self.text_or("a size", "write it in quotes and with its unit, as \"8KiB\" or \"1MiB\"")?;
        let size = self.accept(parse_size(text))?;
        let [least, most] = [range.start(), range.end()].map(|end| spell_size(*end));
        self.within(size, &range, &least, &most)
    }

    fn within<T: PartialOrd>(&self, value: T, range: &RangeInclusive<T>, least: &str, most: &str) -> Option<T> {
        if range.contains(&value) {
            return Some(value);
        }
        let too = if value < *range.start() { "too small" } else { "too large" };
        self.wrong(Fault::new(format!("the value is {too}"), format!("expected {least} to {most}")));
        None
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.parse(|text| choose(text, choices))
    }

    /// The elements of a list. `example` is how a list could be written.
    pub(crate) fn list(&self, example: &str) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.wrong(self.wrong_type("a list").help(format!("write it in brackets, as {example}")));
            return None;
        };
        let item = |(index, item): (usize, &'a toml::Spanned<DeValue<'a>>)| {
            let place = Place { key: format!("{}[{index}]", self.place.key), span: Some(item.span()) };
            Value::new(item.get_ref(), place, self.reading)
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// A list of strings, each understood by `parse`, no two of them the same.
    pub(crate) fn list_of<T: PartialEq>(
        &self,
        example: &str,
        parse: impl Fn(&'a str) -> Result<T, Fault>,
    ) -> Option<Vec<T>> {
        let mut list = Vec::new();
        for item in self.list(example)? {
            match item.parse(&parse) {
                Some(value) if list.contains(&value) => {
                    item.wrong(Fault::new("this stands in the list twice", "remove this one"));
                }
                Some(value) => list.push(value),
                None => {}
            }
        }
        Some(list)
    }

    /// This value as a table.
    pub(crate) fn table(self) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(entries) => Some(Table::new(entries, self.place, self.reading)),
            DeValue::Array(_) => {
                let header = format!("[{}]", self.place.key);
                self.wrong(self.wrong_type("one table").help(format!("there is only one: write {header}")));
                None
            }
            _ => {
                self.wrong(self.wrong_type("a table"));
                None
            }
        }
    }

    /// This value as an array of tables. A lone table is a fault and yet read, so that the faults in it are found too.
    pub(crate) fn tables(self) -> Vec<Table<'a>> {
        if let DeValue::Table(entries) = self.value {
            let header = format!("[[{}]]", self.place.key);
            self.wrong(Fault::new("there can be several of these", format!("expected {header}")));
            return vec![Table::new(entries, self.place, self.reading)];
        }
        let example = format!("[[{}]]", self.place.key);
        self.list(&example).into_iter().flatten().filter_map(Value::table).collect()
    }
}

/// Reads one of a few words.
pub(crate) fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, Fault> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let fault = Fault::new(format!("\"{text}\" is not known here"), format!("expected {}", names.join(", ")));
    Err(match suggest::nearest(text, choices.iter().map(|(name, _)| *name)) {
        Some(near) => fault.help(format!("did you mean \"{near}\"?")),
        None => fault,
    })
}
