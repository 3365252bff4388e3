//! The possible values of a key: for the JSON Schema of the file.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The form of a value. A value may also fail checks that no schema can express.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Boolean,
    Integer(RangeInclusive<usize>),
    Duration(RangeInclusive<Duration>),
    Size(RangeInclusive<usize>),
    /// Any whole number.
    Whole,
    /// One of a few words.
    Choice(Vec<String>),
    Path,
    Text,
    /// A string that this regular expression matches.
    Pattern(&'static str),
    List(Box<Shape>),
    /// A list with at least one element.
    Some(Box<Shape>),
    /// Any of several forms.
    Any(Vec<Shape>),
    Table,
    Tables,
}

impl Shape {
    /// The scheme may be in capital letters.
    pub(crate) const URL: Shape = Shape::Pattern("^[Hh][Tt][Tt][Pp][Ss]?://");

    /// The names of a few words.
    pub(crate) fn choice<T>(choices: &[(&str, T)]) -> Shape {
        Shape::Choice(choices.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    pub(crate) fn list(of: Shape) -> Shape {
        Shape::List(Box::new(of))
    }

    pub(crate) fn some(of: Shape) -> Shape {
        Shape::Some(Box::new(of))
    }

    /// Returns true if a key of this form names a file, or several.
    pub(crate) fn is_path(&self) -> bool {
        match self {
            Shape::Path => true,
            Shape::List(of) => **of == Shape::Path,
            _ => false,
        }
    }

    /// Returns true if a key of this form has no value of its own.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Shape::Table | Shape::Tables)
    }
}
