//! `bearward client list`: the clients of a running gateway.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use super::admin_client::call;
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::terminal::{array_member, text_member};

#[derive(Subcommand)]
pub(super) enum ClientCommand {
    /// List the clients that are registered, that have a document in the memory of this gateway, or that have live
    /// sessions, with the number of these.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: ClientCommand) -> Result<(), CommandError> {
    let ClientCommand::List { config, json } = command;
    let clients = call(&config.admin_socket()?, Method::GET, "/admin/v1/clients", None)?;
    if json {
        say!("{clients}")
    } else {
        print_table(&clients)
    }
    Ok(())
}

fn print_table(clients: &Value) {
    say!("{:>8}  {:12}  {:6}  {:40}  name", "sessions", "source", "denied", "client id");
    for client in array_member(clients, "clients") {
        let live = client.get("live").and_then(Value::as_u64).unwrap_or_default();
        let is_denied = client.get("denied").and_then(Value::as_bool).unwrap_or_default();
        let denied = if is_denied { "yes" } else { "" };
        let [source, id, name] = ["source", "clientId", "name"].map(|member| text_member(client, member));
        say!("{live:>8}  {source:12}  {denied:6}  {id:40}  {name}");
    }
}
