//! `bearward reload`: the running gateway reads its configuration again.

use http::{Method, StatusCode};
use serde_json::Value;

use super::admin_client::{self, CallError};
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::terminal::{array_member, printable, printable_line, text_member};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Only show what a reload would change, and which changes require a restart. Exit with 2 if a reload would reject
    /// the file.
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(Arguments { config, dry_run, json }: Arguments) -> Result<(), CommandError> {
    let admin = config.admin_socket()?;
    let path = if dry_run { "/admin/v1/reload?dryRun=true" } else { "/admin/v1/reload" };
    let (status, body) = admin_client::send(&admin, Method::POST, path, None)?;
    match status {
        StatusCode::UNPROCESSABLE_ENTITY if json => {
            say!("{body}");
            Err(CommandError::Report(String::new()))
        }
        StatusCode::UNPROCESSABLE_ENTITY => Err(CommandError::Report(report(&body))),
        status if !status.is_success() => Err(CallError::rejected(status, &body).into()),
        _ => {
            if json {
                say!("{body}")
            } else if dry_run {
                print_changes(&body);
            } else {
                print_result(&body);
            }
            Ok(())
        }
    }
}

fn print_warnings(body: &Value) {
    let warnings = array_member(body, "warnings").filter_map(Value::as_str).map(printable_line);
    warnings.for_each(|warning| eprintln!("warning: {warning}"));
}

fn report(body: &Value) -> String {
    let report = body.get("report").and_then(Value::as_str).unwrap_or_default();
    let lines: Vec<_> = report.lines().map(printable_line).collect();
    format!("error: not reloaded; the current settings stay active\n{}\n", lines.join("\n"))
}

/// One line for each key, those that require a restart last.
fn print_changes(body: &Value) {
    print_warnings(body);
    let requires_restart = |change: &&Value| change.get("requiresRestart") == Some(&Value::Bool(true));
    let (restart, reload): (Vec<_>, Vec<_>) = array_member(body, "changes").partition(requires_restart);
    if reload.is_empty() && restart.is_empty() {
        say!("no changes");
    }
    for (title, changes) in [("a reload would change:", reload), ("a restart would change:", restart)] {
        if !changes.is_empty() {
            say!("{title}");
        }
        changes.into_iter().for_each(|change| say!("  {}", line(change)));
    }
}

fn line(change: &Value) -> String {
    let key = text_member(change, "key");
    let item = change.get("item").and_then(Value::as_str).map(|item| format!(" ({})", printable(item)));
    let place = format!("{key}{}", item.unwrap_or_default());
    let value = |name| change.get(name).map_or_else(|| "not set".to_owned(), |value| printable(&value.to_string()));
    match text_member(change, "change").as_str() {
        "changed" => format!("{place}: {} -> {}", value("from"), value("to")),
        "content" => format!("{place}: new content of a file"),
        kind => format!("{place}: {kind}"),
    }
}

fn print_result(body: &Value) {
    print_warnings(body);
    let texts = |member| array_member(body, member).filter_map(Value::as_str).map(printable).collect::<Vec<_>>();
    match texts("changed") {
        changed if changed.is_empty() => say!("reloaded; no changes"),
        changed => say!("reloaded; changed: {}", changed.join(", ")),
    }
    let restart = texts("restartKeys");
    if !restart.is_empty() {
        say!("changes that require a restart: {}", restart.join(", "));
    }
}
