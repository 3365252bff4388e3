//! `bearward reload`: a gateway that runs reads its configuration again, and says what became of it.

use http::{Method, StatusCode};
use serde_json::Value;

use super::client::ask;
use super::{ConfigArgument, Failed, load_admin, shown};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    #[arg(long)]
    json: bool,
}

pub(super) fn run(Arguments { config, json }: Arguments) -> Result<(), Failed> {
    let admin = load_admin(&config.file)?;
    let (status, answer) = ask(&admin, Method::POST, "/admin/v1/reload", None)?;
    if json && (status.is_success() || status == StatusCode::UNPROCESSABLE_ENTITY) {
        println!("{answer}");
    }
    match status {
        StatusCode::UNPROCESSABLE_ENTITY if json => Err(Failed::Configuration(String::new())),
        StatusCode::UNPROCESSABLE_ENTITY => {
            let report = answer.get("report").and_then(Value::as_str).unwrap_or_default();
            let lines: Vec<_> = report.lines().map(shown).collect();
            Err(Failed::Configuration(format!("error: nothing was reloaded\n{}\n", lines.join("\n"))))
        }
        status if !status.is_success() => Err(Failed::Running(super::client::refusal(status, &answer))),
        _ if json => Ok(()),
        _ => {
            print_parts(&answer);
            Ok(())
        }
    }
}

fn print_parts(answer: &Value) {
    let parts = |member| {
        let parts = answer.get(member).and_then(Value::as_array).into_iter().flatten();
        parts.filter_map(Value::as_str).map(shown).collect::<Vec<_>>().join(", ")
    };
    match parts("inForce") {
        none if none.is_empty() => println!("reloaded; nothing has changed that a reload can change"),
        changed => println!("reloaded; in force: {changed}"),
    }
    let restart = parts("takesRestart");
    if !restart.is_empty() {
        println!("takes a restart: {restart}");
    }
}
