//! `bearward reload`: the running gateway reads its configuration again.

use http::{Method, StatusCode};
use serde_json::Value;

use super::admin_client::{self, CallError};
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::terminal::{array_member, printable};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(Arguments { config, json }: Arguments) -> Result<(), CommandError> {
    let admin = config.admin_socket()?;
    let (status, body) = admin_client::send(&admin, Method::POST, "/admin/v1/reload", None)?;
    match status {
        StatusCode::UNPROCESSABLE_ENTITY if json => {
            println!("{body}");
            Err(CommandError::Report(String::new()))
        }
        StatusCode::UNPROCESSABLE_ENTITY => Err(CommandError::Report(report(&body))),
        status if !status.is_success() => Err(CallError::rejected(status, &body).into()),
        _ => {
            if json {
                println!("{body}")
            } else {
                print_result(&body)
            }
            Ok(())
        }
    }
}

fn report(body: &Value) -> String {
    let report = body.get("report").and_then(Value::as_str).unwrap_or_default();
    let lines: Vec<_> = report.lines().map(printable).collect();
    format!("error: not reloaded; the current settings stay active\n{}\n", lines.join("\n"))
}

fn print_result(body: &Value) {
    let tables = |member| array_member(body, member).filter_map(Value::as_str).map(printable).collect::<Vec<_>>();
    match tables("changed") {
        changed if changed.is_empty() => println!("reloaded; no changes"),
        changed => println!("reloaded; changed: {}", changed.join(", ")),
    }
    let restart = tables("requiresRestart");
    if !restart.is_empty() {
        println!("changes that require a restart: {}", restart.join(", "));
    }
}
