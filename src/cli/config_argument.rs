//! `--config`, and reading the file that it names.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::error::CommandError;
use crate::admin;
use crate::config::{self, Config, ConfigErrors, Probe};

#[derive(clap::Args)]
pub(super) struct ConfigArgument {
    /// Configuration file. Relative paths in it start at its folder.
    #[arg(long = "config", value_name = "FILE", default_value = "gateway.toml")]
    pub(super) file: PathBuf,
}

impl ConfigArgument {
    pub(super) fn load(&self, probe: Probe) -> Result<Config, CommandError> {
        config::load(&self.file, probe).map_err(report)
    }

    /// As [`ConfigArgument::load`]. Each warning becomes a line of the log.
    pub(super) fn load_and_warn(&self, probe: Probe) -> Result<Config, CommandError> {
        let (config, warnings) = config::load_with_warnings(&self.file, probe).map_err(report)?;
        for warning in warnings.lines() {
            tracing::warn!("{warning}");
        }
        Ok(config)
    }

    /// Reads `[admin]` only: errors in other tables do not stop a command for a running gateway.
    pub(super) fn load_admin(&self) -> Result<admin::Settings, CommandError> {
        config::load_admin(&self.file).map_err(report)
    }
}

/// The errors as they are shown on standard error.
pub(super) fn report(errors: ConfigErrors) -> CommandError {
    CommandError::Report(errors.render(std::io::stderr().is_terminal()))
}
