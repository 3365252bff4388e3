//! The command line: the only code that prints for people.
//!
//! Exit status: 0 for success, 1 for a failure or a negative result, 2 for an invalid configuration or argument, 3 for
//! a result that is not known.

mod admin_client;
mod apikey;
mod chain_file;
mod check;
mod client;
mod config_argument;
mod demo;
mod echo;
mod error;
mod explain;
mod init;
mod keys;
mod output;
mod percent;
mod progress;
mod rejection;
mod reload;
mod report;
mod running_gateway;
mod schema;
mod serve;
mod signals;
mod store;
mod terminal;
mod token;
mod top;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tracing::warn;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::telemetry::messages::Messages;
use crate::types::process;

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
    Serve(serve::Arguments),
    /// Write a first gateway.toml.
    Init(init::Arguments),
    /// Check the configuration without starting the gateway. Report every error at once. Look at all files that it
    /// names, and at the secrets and the database as a start would find them, also beside a running gateway. Change and
    /// create nothing.
    Check(check::Arguments),
    /// Print the JSON Schema of gateway.toml, for editors and linters.
    Schema,
    /// Show step by step how the gateway decides about a request. Exit with 0 if it would allow the request, with 1 if
    /// not, and with 3 if it is not known whether the token is revoked.
    Explain(explain::Arguments),
    /// Verify the signature of a token from standard input. Exit with 0 if it is valid. It may be revoked: see explain.
    Verify(verify::Arguments),
    /// Run a gateway in front of a small echo backend, and print requests to try.
    Demo,
    /// Make the running gateway reload its configuration, and show what has changed.
    Reload(reload::Arguments),
    /// Show what the running gateway does now: requests, rejections, durations, limits. One screen in a terminal, else
    /// one line for each second.
    Top(top::Arguments),
    /// Issue, list and revoke tokens of the running gateway.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Issue, list and revoke API keys of the running gateway.
    #[command(subcommand)]
    Apikey(apikey::ApiKeyCommand),
    /// List the OAuth clients of the running gateway.
    #[command(subcommand)]
    Client(client::ClientCommand),
    /// List, rotate and revoke the signing keys of the running gateway.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Move the store.
    #[command(subcommand)]
    Store(store::StoreCommand),
}

/// All commands with their arguments. The man pages and completions in `deploy/` are made of them.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command that the arguments name. Invalid arguments end the process here, with exit status 2.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let messages = start_logging(&arguments.command);
    // Before any secret is read.
    if let Err(error) = process::forbid_dumps() {
        tracing::warn!(%error, "cannot forbid core files and debuggers of this user");
    }
    let done = match arguments.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Init(arguments) => init::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Schema => schema::run(),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Demo => demo::run(),
        Command::Reload(arguments) => reload::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Token(command) => token::run(command),
        Command::Apikey(command) => apikey::run(command),
        Command::Client(command) => client::run(command),
        Command::Keys(command) => keys::run(command),
        Command::Store(command) => store::run(command),
    };
    if let Some(messages) = messages {
        messages.flush();
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.print(),
    }
}

/// Logs to standard error. `BEARWARD_LOG` sets the levels: `debug`, `bearward::upstream=trace`, …
///
/// Returns the messages of a gateway, which wait for nothing and must be flushed at the end.
fn start_logging(command: &Command) -> Option<Messages> {
    let levels = std::env::var("BEARWARD_LOG").ok();
    let chosen = levels.as_deref().map(str::parse::<Targets>);
    let default = if matches!(command, Command::Serve(_)) { LevelFilter::INFO } else { LevelFilter::WARN };
    let filter = match &chosen {
        Some(Ok(filter)) => filter.clone(),
        _ => Targets::new().with_default(default),
    };
    let lines = fmt::layer().with_ansi(std::io::stderr().is_terminal());
    let is_gateway = matches!(command, Command::Serve(_) | Command::Demo);
    let messages = is_gateway.then(Messages::start).and_then(Result::ok);
    match messages.clone() {
        Some(messages) => registry().with(lines.with_writer(messages).with_filter(filter)).init(),
        None => registry().with(lines.with_writer(std::io::stderr).with_filter(filter)).init(),
    }
    if let Some(Err(error)) = chosen {
        warn!("BEARWARD_LOG is not understood ({error}): expected `debug` or `info,bearward::upstream=trace`");
    }
    messages
}
