//! Values that are not in the file: environment variables and credentials of systemd.
//!
//! Errors name the variable and never show its text, which may be a secret that was set by mistake.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::config::document::error::ConfigError;

/// Shorter texts are replaced only in quotes: they occur in other words too.
const MIN_HIDDEN: usize = 4;

#[derive(Clone, Debug)]
pub(crate) enum Outside {
    Variable { name: String, text: String },
    Credential { name: String },
    Unavailable(Box<ConfigError>),
}

/// By the position of the value in the files.
#[derive(Default)]
pub(crate) struct OutsideValues(pub(super) BTreeMap<usize, Outside>);

impl OutsideValues {
    pub(crate) fn at(&self, span: Option<&Range<usize>>) -> Option<&Outside> {
        self.0.get(&span?.start)
    }

    /// The error of a value that cannot be read.
    pub(super) fn error_at(&self, span: Option<&Range<usize>>) -> Option<&ConfigError> {
        match self.at(span)? {
            Outside::Unavailable(error) => Some(error),
            _ => None,
        }
    }

    pub(super) fn is_variable(&self, span: Option<&Range<usize>>) -> bool {
        matches!(self.at(span), Some(Outside::Variable { .. }))
    }

    pub(super) fn is_credential(&self, span: Option<&Range<usize>>) -> bool {
        matches!(self.at(span), Some(Outside::Credential { .. }))
    }

    /// Names the origin of the value that the error is about.
    pub(super) fn explain(&self, error: ConfigError) -> ConfigError {
        match self.at(error.place.span.as_ref()) {
            Some(Outside::Variable { name, text }) => {
                let mut error = error.map_text(|message| without(message, name, text));
                error.message.push_str(&format!(" (from the environment variable {name})"));
                error
            }
            Some(Outside::Credential { name }) => {
                let mut error = error;
                if error.message.contains("does not exist") {
                    error.help = format!("add LoadCredential={name}:FILE to the unit of systemd");
                }
                error.message.push_str(&format!(" (the credential {name})"));
                error
            }
            _ => error,
        }
    }
}

/// `message` without the text of the variable, also as it is escaped for a terminal, and without words of it: a path
/// may be shown as its folder, and a part as one name.
fn without(message: &str, name: &str, text: &str) -> String {
    let hidden = format!("${name}");
    let mut message = message.to_owned();
    for text in [text.to_owned(), text.escape_debug().to_string()] {
        message = message.replace(&format!("\"{text}\""), &hidden).replace(&format!("`{text}`"), &hidden);
        if text.len() >= MIN_HIDDEN {
            message = message.replace(&text, &hidden);
        }
        // The longest first: a word may be part of a longer one.
        let mut words: Vec<&str> = text.split(is_between).chain(text.split(['/', ':'])).collect();
        words.retain(|word| word.len() >= MIN_HIDDEN);
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        message = words.into_iter().fold(message, |message, word| without_word(&message, word, &hidden));
    }
    message
}

fn is_between(c: char) -> bool {
    !c.is_alphanumeric() && !matches!(c, '-' | '_')
}

/// Replaces `word` where it is not part of a longer word.
fn without_word(message: &str, word: &str, hidden: &str) -> String {
    let mut result = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(word) {
        let before = &rest[..at];
        let after = &rest[at + word.len()..];
        let is_whole = before.chars().next_back().or(result.chars().next_back()).is_none_or(is_between)
            && after.chars().next().is_none_or(is_between);
        result.push_str(before);
        result.push_str(if is_whole { hidden } else { word });
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_variable_is_in_no_message() {
        for (message, text, expected) in [
            ("\"soon\" is not a duration", "soon", "$T is not a duration"),
            ("write \"http://a.example\"", "a.example", "write \"http://$T\""),
            ("\"a\" is not a duration", "a", "$T is not a duration"),
            ("\"a\\nbcd\" is not a host", "a\nbcd", "$T is not a host"),
            ("expected 1 to 64 letters", "1", "expected 1 to 64 letters"),
            ("the folder secret/a does not exist", "secret/a/x", "the folder $T/a does not exist"),
            ("mkdir -p /etc/secret-a", "secret-a/x", "mkdir -p /etc/$T"),
            ("\"se cret\" is not a cookie name", "cookie:se cret", "\"$T\" is not a $T name"),
            ("expected folders", "folder/x", "expected folders"),
        ] {
            assert_eq!(without(message, "T", text), expected);
        }
    }
}
