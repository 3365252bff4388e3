//! Warnings about settings that `gateway.toml` allows. The gateway starts in spite of them.

use crate::config::document::error::{ConfigError, ConfigErrors, Place, Severity};
use crate::config::document::sources::Sources;

/// All warnings about one file, in its order. Often empty.
pub struct ConfigWarnings(ConfigErrors);

impl ConfigWarnings {
    pub(crate) fn new(sources: Sources, warnings: Vec<ConfigError>) -> Self {
        ConfigWarnings(ConfigErrors::of(Severity::Warning, sources, warnings))
    }

    pub fn is_empty(&self) -> bool {
        self.0.all().is_empty()
    }

    pub fn all(&self) -> &[ConfigError] {
        self.0.all()
    }

    /// As [`ConfigErrors::line_and_column`].
    pub fn line_and_column(&self, place: &Place) -> (usize, usize) {
        self.0.line_and_column(place)
    }

    /// As [`ConfigErrors::render`].
    pub fn render(&self, colour: bool) -> String {
        self.0.render(colour)
    }

    /// As [`ConfigErrors::json`].
    pub fn json(&self) -> String {
        self.0.json()
    }

    /// Each warning in one line, for a log.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.lines()
    }
}
