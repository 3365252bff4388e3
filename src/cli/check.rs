//! `bearward check`: reports every error in the configuration.

use super::config_argument::{ConfigArgument, report};
use super::error::CommandError;
use crate::config::{self, Probe};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print the errors as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(Arguments { config, json }: Arguments) -> Result<(), CommandError> {
    match config::load(&config.file, Probe::None) {
        Ok(_) if json => println!("[]"),
        Ok(_) => println!("{}: no errors", config.file.display()),
        Err(errors) if json => {
            println!("{}", errors.json());
            return Err(CommandError::Report(String::new()));
        }
        Err(errors) => return Err(report(errors)),
    }
    Ok(())
}
