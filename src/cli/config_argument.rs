//! `--config`, and reading the file that it names.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::error::CommandError;
use super::running_gateway;
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

    /// The socket of the running gateway. Errors in the rest of the file do not stop a command.
    pub(super) fn admin_socket(&self) -> Result<PathBuf, CommandError> {
        let named = config::load_admin_socket(&self.file).map_err(report)?;
        let Some(found) = running_gateway::find(&self.file, &named) else { return Ok(named) };
        let old = found.display();
        let new = named.display();
        eprintln!("note: the gateway listens at {old}, and the file now says {new}, which it uses after a restart");
        Ok(found)
    }
}

/// The errors as they are shown on standard error.
pub(super) fn report(errors: ConfigErrors) -> CommandError {
    CommandError::Report(errors.render(std::io::stderr().is_terminal()))
}
