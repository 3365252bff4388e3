//! `[access_log]`

use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogSettings {
    pub target: AccessLogTarget,
    pub format: Format,
    /// `access_log.max_field_size`: Maximum bytes of one text in a line.
    pub max_field_size: usize,
    /// `access_log.rejections_per_second`: Maximum lines of rejected requests; 0 for no limit.
    pub rejections_per_second: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AccessLogTarget {
    Off,
    Stdout,
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
    Combined,
}
