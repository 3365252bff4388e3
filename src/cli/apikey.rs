//! `bearward apikey issue|list|revoke`: the API keys of a running gateway.

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::admin_client::call;
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::percent::percent_encode;
use super::terminal::{array_member, text_member};

#[derive(Subcommand)]
pub(super) enum ApiKeyCommand {
    /// Issue an API key and print it. It is shown only once.
    Issue {
        #[command(flatten)]
        config: ConfigArgument,
        /// The user or service that the key is for: the `sub` that backends and rules see.
        #[arg(long)]
        subject: String,
        /// Scopes, separated by spaces.
        #[arg(long, default_value = "")]
        scope: String,
        /// Name of the key in lists.
        #[arg(long, default_value = "")]
        label: String,
        /// The client that gets the key: its `client_id`.
        #[arg(long, default_value = "")]
        client_id: String,
        /// Seconds until the key expires. Default: 90 days.
        #[arg(long, value_name = "SECONDS")]
        expires_in: Option<u64>,
        /// Maximum number of requests, such as 100/min. The units are s, min, h and day. Default: no limit of its own.
        #[arg(long, value_name = "REQUESTS/UNIT")]
        rate: Option<String>,
        /// Print the key as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List API keys, live and ended, without their secrets.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        /// Only the keys of this `sub`.
        #[arg(long)]
        subject: Option<String>,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke one API key.
    Revoke {
        #[command(flatten)]
        config: ConfigArgument,
        /// The id of the key: the first part after `bwk_`.
        key_id: String,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: ApiKeyCommand) -> Result<(), CommandError> {
    match command {
        ApiKeyCommand::Issue { config, subject, scope, label, client_id, expires_in, rate, json } => {
            let mut body = json!({ "sub": subject, "scope": scope, "label": label, "clientId": client_id });
            if let Some(seconds) = expires_in {
                body["expiresIn"] = json!(seconds);
            }
            if let Some(rate) = rate {
                body["rate"] = json!(rate);
            }
            let issued = call(&config.admin_socket()?, Method::POST, "/admin/v1/api-keys", Some(&body))?;
            if json { say!("{issued}") } else { print_issued(&issued) }
        }
        ApiKeyCommand::List { config, subject, json } => {
            let subject = subject.map(|subject| format!("&subject={}", percent_encode(&subject))).unwrap_or_default();
            let admin = config.admin_socket()?;
            let mut after = String::new();
            let mut keys = Vec::new();
            loop {
                let path = format!("/admin/v1/api-keys?limit=500{subject}{after}");
                let page = call(&admin, Method::GET, &path, None)?;
                keys.extend(array_member(&page, "apiKeys").cloned());
                let Some(next) = page.get("next").and_then(Value::as_str) else { break };
                after = format!("&after={next}");
            }
            if json { say!("{}", json!({ "apiKeys": keys })) } else { print_table(&keys) }
        }
        ApiKeyCommand::Revoke { config, key_id, json } => {
            let path = format!("/admin/v1/api-keys/{}", percent_encode(&key_id));
            let result = call(&config.admin_socket()?, Method::DELETE, &path, None)?;
            if json { say!("{result}") } else { say!("revoked") }
        }
    }
    Ok(())
}

fn print_issued(issued: &Value) {
    for (title, member) in [("key id", "keyId"), ("API key", "apiKey"), ("expires", "expiresAt")] {
        say!("{title:7}  {}", text_member(issued, member));
    }
}

fn print_table(keys: &[Value]) {
    say!(
        "{:22}  {:7}  {:20}  {:24}  {:24}  {:12}  {:20}  label",
        "key id",
        "state",
        "subject",
        "expires",
        "last used",
        "rate",
        "scope"
    );
    for key in keys {
        let [id, state, subject, expires] = ["keyId", "state", "sub", "expiresAt"].map(|name| text_member(key, name));
        let [used, rate, scope, label] = ["lastUsedAt", "rate", "scope", "label"].map(|name| text_member(key, name));
        say!("{id:22}  {state:7}  {subject:20}  {expires:24}  {used:24}  {rate:12}  {scope:20}  {label}");
    }
}
