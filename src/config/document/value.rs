//! One value of the file, read as a string, a number, a duration, a size or a list.

use std::collections::HashSet;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::DeValue;

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::report::Report;
use crate::config::document::suggest;
use crate::config::document::units::{
    DURATION_UNITS, SIZE_UNITS, format_duration, format_size, missing_unit, parse_duration, parse_size,
};

pub(crate) struct Value<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) place: Place,
    pub(super) report: &'a Report<'a>,
    /// The place of its record. `None` for an element of a list.
    record: Option<usize>,
}

impl<'a> Value<'a> {
    pub(crate) fn new(value: &'a DeValue<'a>, place: Place, report: &'a Report<'a>) -> Self {
        Value { value, place, report, record: None }
    }

    pub(super) fn recorded(self, record: Option<usize>) -> Self {
        Value { record, ..self }
    }

    /// Reports an error about this value.
    pub(crate) fn reject(&self, error: ConfigError) {
        self.report.add(error.at(&self.place));
    }

    /// Reports a warning about this value.
    pub(crate) fn warn(&self, warning: ConfigError) {
        self.report.warn(warning.at(&self.place));
    }

    /// The result of a check of this value, or `None` after its error was reported.
    pub(crate) fn accept<T>(&self, checked: Result<T, ConfigError>) -> Option<T> {
        checked.map_err(|error| self.reject(error)).ok()
    }

    pub(crate) fn is_string(&self) -> bool {
        self.value.is_str()
    }

    /// Returns true if this is true or false, also in a variable.
    pub(crate) fn is_switch(&self) -> bool {
        self.value.is_bool() || self.is_variable() && matches!(self.value.as_str(), Some("true" | "false"))
    }

    pub(crate) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(crate) fn string(&self) -> Option<&'a str> {
        self.string_or("a string in quotes", "")
    }

    /// The string. If it is another type, reports `expected` and `help`.
    fn string_or(&self, expected: &str, help: &str) -> Option<&'a str> {
        match self.value {
            // Only a path can be a credential.
            DeValue::String(_) if self.is_credential() => {
                let error = ConfigError::new("a credential is a file", format!("expected {expected}"));
                self.reject(error.help("only keys that name files can have credentials"));
                None
            }
            DeValue::String(text) => Some(text),
            _ => {
                self.reject(self.wrong_type(expected).help(help));
                None
            }
        }
    }

    /// Returns true if this is the text of an environment variable, which also stands for numbers and booleans.
    fn is_variable(&self) -> bool {
        self.report.outside().is_variable(self.place.span.as_ref())
    }

    fn is_credential(&self) -> bool {
        self.report.outside().is_credential(self.place.span.as_ref())
    }

    pub(super) fn wrong_type(&self, expected: &str) -> ConfigError {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        ConfigError::new(format!("wrong type: this is {found}"), format!("expected {expected}"))
    }

    /// States the value that is in force, as all values of this kind are written.
    fn record(&self, value: impl Into<Json>) {
        if let Some(record) = self.record {
            self.report.change(record, |record| record.value = Some(value.into()));
        }
    }

    /// The result of `parse` for this string.
    pub(crate) fn parse<T>(&self, parse: impl FnOnce(&'a str) -> Result<T, ConfigError>) -> Option<T> {
        self.accept(parse(self.string()?))
    }

    /// A path. A relative path starts at the folder of the file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let text = match self.value.as_str() {
            Some(path) if self.is_credential() => path,
            _ => self.string()?,
        };
        let path = self.accept(match text {
            "" => Err(ConfigError::new("the path is empty", "expected the path of a file")),
            path => Ok(self.report.base().join(path)),
        })?;
        self.record(path.display().to_string());
        Some(path)
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            DeValue::String(text) if self.is_variable() && matches!(text.as_ref(), "true" | "false") => {
                let value = text == "true";
                self.record(value);
                Some(value)
            }
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                self.reject(self.wrong_type("true or false").help(format!("write {text} without quotes")));
                None
            }
            _ => {
                self.reject(self.wrong_type("true or false"));
                None
            }
        }
    }

    /// A value to compare claims with. Fractions are rejected: the same number can be written in several ways.
    pub(crate) fn scalar(&self) -> Option<Json> {
        match self.value {
            DeValue::String(text) => Some(text.as_ref().into()),
            DeValue::Boolean(value) => Some((*value).into()),
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix()).ok();
                if number.is_none() {
                    self.reject(ConfigError::new("the number is out of range", "expected a 64-bit number"));
                }
                number.map(Into::into)
            }
            _ => {
                self.reject(self.wrong_type("a string, a whole number, true or false"));
                None
            }
        }
    }

    pub(crate) fn integer(&self, range: RangeInclusive<usize>) -> Option<usize> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let number = match self.value {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(text) if self.is_variable() && text.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
                text.trim().parse().ok()
            }
            _ => {
                self.reject(self.wrong_type(&expected));
                return None;
            }
        };
        let in_range = number.filter(|number| range.contains(number));
        match in_range {
            Some(number) => self.record(number),
            None => self.reject(ConfigError::new("the number is out of range", format!("expected {expected}"))),
        }
        in_range
    }

    pub(crate) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        if let DeValue::Integer(number) = self.value {
            self.reject(missing_unit("a duration", number.as_str(), DURATION_UNITS));
            return None;
        }
        let help = "write it in quotes and with its unit, for example \"30s\", \"15m\" or \"7d\"";
        let text = self.string_or("a duration", help)?;
        let duration = self.accept(parse_duration(text))?;
        let [min, max] = [range.start(), range.end()].map(|end| format_duration(*end));
        self.record(format_duration(duration));
        self.within(duration, &range, &min, &max)
    }

    pub(crate) fn size(&self, range: RangeInclusive<usize>) -> Option<usize> {
        if let DeValue::Integer(number) = self.value {
            self.reject(missing_unit("a size", number.as_str(), SIZE_UNITS));
            return None;
        }
        let help = "write it in quotes and with its unit, for example \"8KiB\" or \"1MiB\"";
        let text = self.string_or("a size", help)?;
        let size = self.accept(parse_size(text))?;
        let [min, max] = [range.start(), range.end()].map(|end| format_size(*end));
        self.record(format_size(size));
        self.within(size, &range, &min, &max)
    }

    fn within<T: PartialOrd>(&self, value: T, range: &RangeInclusive<T>, min: &str, max: &str) -> Option<T> {
        if range.contains(&value) {
            return Some(value);
        }
        let too = if value < *range.start() { "too small" } else { "too large" };
        self.reject(ConfigError::new(format!("the value is {too}"), format!("expected {min} to {max}")));
        None
    }

    /// The value that belongs to one of a few words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.parse(|text| choose(text, choices))
    }

    /// The elements of a list. `example`: a possible list.
    pub(crate) fn list(&self, example: &str) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.reject(self.wrong_type("a list").help(format!("write it in brackets, for example {example}")));
            return None;
        };
        let item = |(index, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let place = Place { key: format!("{}[{index}]", self.place.key), span: Some(item.span()) };
            Value::new(item.get_ref(), place, self.report)
        };
        let values: Vec<_> = items.iter().enumerate().map(item).collect();
        // Every error is reported, and the list as a whole has none of its own.
        let is_available = values.iter().filter(|value| !value.is_available()).count() == 0;
        is_available.then_some(values)
    }

    /// Reports the error of an element that is not in the file and cannot be read.
    fn is_available(&self) -> bool {
        let error = self.report.outside().error_at(self.place.span.as_ref());
        error.is_none_or(|error| {
            self.reject(error.clone());
            false
        })
    }

    /// As [`Value::list_of`], for a list with at least one element.
    pub(crate) fn some_of<T: Clone + Eq + Hash>(
        &self,
        example: &str,
        parse: impl Fn(&'a str) -> Result<T, ConfigError>,
    ) -> Option<Vec<T>> {
        let list = self.list_of(example, parse)?;
        if list.is_empty() && self.list(example)?.is_empty() {
            let expected = format!("expected at least one, for example {example}");
            self.reject(ConfigError::new("the list is empty", expected));
        }
        Some(list)
    }

    /// A list of strings without duplicates, each read by `parse`.
    pub(crate) fn list_of<T: Clone + Eq + Hash>(
        &self,
        example: &str,
        parse: impl Fn(&'a str) -> Result<T, ConfigError>,
    ) -> Option<Vec<T>> {
        let mut list = Vec::new();
        let mut known = HashSet::new();
        for item in self.list(example)? {
            match item.parse(&parse) {
                Some(value) if !known.insert(value.clone()) => {
                    item.reject(ConfigError::new("this is in the list twice", "remove this one"));
                }
                Some(value) => list.push(value),
                None => {}
            }
        }
        Some(list)
    }
}

/// The value that belongs to one of a few words.
pub(crate) fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
    match choices.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => Err(unknown_word(text, &words_of(choices))),
    }
}

pub(super) fn words_of<'w, T>(choices: &[(&'w str, T)]) -> Vec<&'w str> {
    choices.iter().map(|(name, _)| *name).collect()
}

/// Returns the text if it is one of these words.
pub(crate) fn check_word<'t>(text: &'t str, words: &[&str]) -> Result<&'t str, ConfigError> {
    if words.contains(&text) { Ok(text) } else { Err(unknown_word(text, words)) }
}

/// Apart from [`choose`], of which the program has a copy for each type.
fn unknown_word(text: &str, words: &[&str]) -> ConfigError {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let error = ConfigError::new(format!("unknown value \"{text}\""), format!("expected {}", quoted.join(", ")));
    match suggest::nearest(text, words.iter().copied()) {
        Some(near) => error.help(format!("did you mean \"{near}\"?")),
        None => error,
    }
}
