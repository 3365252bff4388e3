//! The command line. The only place that writes for people.
//!
//! Exit status: 0 done, 1 failed while running, 2 wrong configuration or arguments.

#![allow(clippy::print_stdout, reason = "this is where output for people is written")]

mod client;
mod demo;
mod echo;
mod explain;
mod keys;
mod reload;
mod report;
mod serve;
mod token;
mod verify;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::admin;
use crate::config::{self, Config, Probe};

/// A reverse-proxy auth gateway that enforces and brokers tokens.
#[derive(Parser)]
#[command(name = "bearward", version, about, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Serve {
        #[command(flatten)]
        config: ConfigArgument,
        /// Take the sockets over from the gateway that runs with this configuration, which then ends: no client is refused.
        /// Without such a gateway, start as usual.
        #[arg(long)]
        take_over: bool,
    },
    /// Check the configuration without starting: every fault at once.
    Check {
        #[command(flatten)]
        config: ConfigArgument,
        /// Print the faults as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say what the gateway would answer to a request, step by step, and exit with 0 if it would let it through.
    Explain(explain::Arguments),
    /// Check the signature of a token on standard input, and exit with 0 if it holds.
    Verify(verify::Arguments),
    /// Run a gateway in front of a small echo backend, and print what to try.
    Demo,
    /// Have a running gateway read its configuration again, and say what has changed.
    Reload(reload::Arguments),
    /// Issue, list and revoke tokens of a running gateway.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// List, rotate and revoke the keys that sign the tokens of a running gateway.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
}

#[derive(clap::Args)]
struct ConfigArgument {
    /// The configuration file; relative paths in it begin at its folder.
    #[arg(long = "config", value_name = "FILE", default_value = "gateway.toml")]
    file: PathBuf,
}

/// Why a command did not succeed, and the exit status that says so.
enum Failed {
    /// Exit status 1.
    Running(String),
    /// Exit status 1: the answer is no, and was printed.
    Answered,
    /// Exit status 2; the text is complete as it is.
    Configuration(String),
}

impl From<String> for Failed {
    fn from(fault: String) -> Self {
        Failed::Running(fault)
    }
}

/// Reads the arguments, does what they say, and tells how it went.
pub fn run() -> ExitCode {
    // Wrong arguments end here, with exit status 2.
    let arguments = Arguments::parse();
    start_logging(&arguments.command);
    let done = match arguments.command {
        Command::Serve { config, take_over } => serve::serve(&config.file, take_over),
        Command::Check { config, json } => check(&config.file, json),
        Command::Explain(arguments) => explain::explain(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Demo => demo::demo(),
        Command::Reload(arguments) => reload::run(arguments),
        Command::Token(command) => token::run(command),
        Command::Keys(command) => keys::run(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Running(fault)) => {
            eprintln!("error: {fault}");
            ExitCode::from(1)
        }
        Err(Failed::Answered) => ExitCode::from(1),
        Err(Failed::Configuration(faults)) => {
            eprint!("{faults}");
            ExitCode::from(2)
        }
    }
}

/// Diagnostics go to standard error; `BEARWARD_LOG` filters them (`debug`, `bearward::upstream=trace`, …).
fn start_logging(command: &Command) {
    let quiet = if matches!(command, Command::Serve { .. }) { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("BEARWARD_LOG").unwrap_or_else(|_| EnvFilter::new(quiet));
    let colour = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour).init();
}

fn load(file: &Path, probe: Probe) -> Result<Config, Failed> {
    let colour = std::io::stderr().is_terminal();
    config::load(file, probe).map_err(|faults| Failed::Configuration(faults.render(colour)))
}

fn load_admin(file: &Path) -> Result<admin::Settings, Failed> {
    config::load_admin(file).map_err(|faults| Failed::Configuration(faults.render(std::io::stderr().is_terminal())))
}

fn check(file: &Path, json: bool) -> Result<(), Failed> {
    match config::load(file, Probe::None) {
        Ok(_) if json => println!("[]"),
        Ok(_) => println!("{}: no errors", file.display()),
        Err(faults) if json => {
            println!("{}", faults.json());
            return Err(Failed::Configuration(String::new()));
        }
        Err(faults) => return Err(Failed::Configuration(faults.render(std::io::stderr().is_terminal()))),
    }
    Ok(())
}

/// For a terminal: control characters, which could drive it, are escaped.
fn shown(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// What was given on the command line, or is named by it, cannot be used.
fn wrong(fault: String) -> Failed {
    Failed::Configuration(format!("error: {fault}\n"))
}
