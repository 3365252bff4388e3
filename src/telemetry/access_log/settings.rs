//! `[access_log]`

use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub target: Target,
    pub format: Format,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Off,
    Stdout,
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}
