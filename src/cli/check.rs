//! `bearward check`: reports every error in the configuration, and what is allowed and dangerous. Also looks at the
//! secrets and the database.

use std::io::IsTerminal;

use super::config_argument::{ConfigArgument, report};
use super::error::CommandError;
use super::output::say;
use super::terminal::printable_line;
use crate::app;
use crate::config::{self, Config, ConfigWarnings, Probe, Values};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print errors and warnings as JSON.
    #[arg(long)]
    json: bool,
    /// Print every key with its value and where the value comes from: a file and its line, or the default.
    #[arg(long)]
    effective: bool,
    /// Fail if there is a warning.
    #[arg(long)]
    deny_warnings: bool,
    /// Do not connect to the PostgreSQL database of the configuration.
    #[arg(long)]
    offline: bool,
}

/// Exit status 2 if there is an error, or a warning with `--deny-warnings`.
pub(super) fn run(
    Arguments { config, json, effective, deny_warnings, offline }: Arguments,
) -> Result<(), CommandError> {
    let attempt = |config: &Config| app::check(config, offline);
    let file = config.file.display();
    match config::load_and_try(&config.file, Probe::None, attempt) {
        Ok((config, warnings)) => {
            if effective {
                eprint!("{}", if warnings.is_empty() { String::new() } else { render(&warnings) });
                print_values(&config.values, json);
            } else if json {
                say!("{}", warnings.json());
            } else if warnings.is_empty() {
                say!("{file}: no errors");
            } else {
                eprint!("{}", render(&warnings));
                say!("{file}: no errors, {} to look at", count(&warnings));
            }
            if deny_warnings && !warnings.is_empty() {
                return Err(CommandError::Report(String::new()));
            }
        }
        Err(errors) if json => {
            say!("{}", errors.json());
            return Err(CommandError::Report(String::new()));
        }
        Err(errors) => return Err(report(errors)),
    }
    Ok(())
}

fn render(warnings: &ConfigWarnings) -> String {
    warnings.render(std::io::stderr().is_terminal())
}

fn print_values(values: &Values, json: bool) {
    if json {
        say!("{:#}", values.json());
        return;
    }
    let text = values.text();
    text.lines().for_each(|line| say!("{}", printable_line(line)));
}

fn count(warnings: &ConfigWarnings) -> String {
    match warnings.all().len() {
        1 => "1 warning".to_owned(),
        several => format!("{several} warnings"),
    }
}
