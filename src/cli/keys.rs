//! `bearward keys list|rotate|revoke`: the signing keys of a running gateway.

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::admin_client::call;
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::terminal::{array_member, printable, text_member};
use crate::app;
use crate::config::{Database, Probe, StoreSettings};

#[derive(Subcommand)]
pub(super) enum KeysCommand {
    /// List the current, next and former signing keys.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Publish the next signing key. It signs after tokens.key_ahead.
    Rotate {
        #[command(flatten)]
        config: ConfigArgument,
        /// Sign with the next key at once. Services that cache the key set may reject its tokens until they fetch it
        /// again.
        #[arg(long)]
        now: bool,
        /// Add a root secret to store.secret_file instead. From its next start, the gateway seals the signing keys with
        /// it.
        #[arg(long, conflicts_with = "now")]
        root: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a signing key: the gateway rejects every token that it signed, and signs with another key.
    Revoke {
        #[command(flatten)]
        config: ConfigArgument,
        /// The `kid` in `keys list` and in the header of a token.
        #[arg(allow_hyphen_values = true)]
        kid: String,
        /// Still accept the key's tokens at a refresh. Default: clients with no other token must log in again. The same
        /// command without it takes this back. A key that is revoked without it stays so.
        #[arg(long)]
        may_refresh: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: KeysCommand) -> Result<(), CommandError> {
    let (keys, json) = match command {
        KeysCommand::Rotate { config, root: true, json, .. } => return add_root_secret(&config, json),
        KeysCommand::List { config, json } => {
            (call(&config.admin_socket()?, Method::GET, "/admin/v1/keys", None)?, json)
        }
        KeysCommand::Rotate { config, now, json, .. } => {
            let body = json!({ "now": now });
            (call(&config.admin_socket()?, Method::POST, "/admin/v1/keys/rotate", Some(&body))?, json)
        }
        KeysCommand::Revoke { config, kid, may_refresh, json } => {
            let admin = config.admin_socket()?;
            let path = format!("/admin/v1/keys/{}/revoke", path_segment(&kid)?);
            (call(&admin, Method::POST, &path, Some(&json!({ "mayRefresh": may_refresh })))?, json)
        }
    };
    if json {
        say!("{keys}")
    } else {
        print_table(&keys)
    }
    Ok(())
}

fn add_root_secret(config: &ConfigArgument, json: bool) -> Result<(), CommandError> {
    let StoreSettings { database, secret: source, .. } = config.load(Probe::None)?.store;
    let number = app::add_root(&source)?;
    let next = match database {
        Database::Sqlite(_) => "restart the gateway to use it",
        // Another gateway that does not know the secret yet could not read what is encrypted under it.
        Database::Postgres(_) => "copy it to every gateway, and restart each of them twice to use it",
    };
    if json {
        say!("{}", json!({ "root": number }))
    } else {
        say!("added root secret {number} to {source}; {next}")
    }
    Ok(())
}

/// A `kid` is a base64url thumbprint, which needs no percent-encoding in a path.
fn path_segment(kid: &str) -> Result<&str, CommandError> {
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !kid.is_empty() && kid.bytes().all(is_base64url) {
        Ok(kid)
    } else {
        Err(CommandError::invalid(format!("{kid:?} is not a kid; see `bearward keys list`")))
    }
}

fn print_table(keys: &Value) {
    say!("{:43}  {:9}  {:12}  {:24}  {:24}  ended", "kid", "algorithm", "state", "created", "signs since");
    for key in array_member(keys, "keys") {
        let [kid, algorithm, state, created] =
            ["kid", "algorithm", "state", "createdAt"].map(|name| text_member(key, name));
        let [activated, retired, revoked] =
            ["activatedAt", "retiredAt", "revokedAt"].map(|name| text_member(key, name));
        let ended = match key.get("mayRefresh").and_then(Value::as_bool) {
            Some(true) => format!("{revoked}, its tokens may refresh"),
            Some(false) => format!("{revoked}, for good"),
            None => retired,
        };
        say!("{kid:43}  {algorithm:9}  {state:12}  {created:24}  {activated:24}  {ended}");
    }
    match keys.get("nextRotation").and_then(Value::as_str) {
        Some(time) => say!("the next key signs from {}", printable(time)),
        None => say!("the key in tokens.signing_key_file signs; you rotate it"),
    }
}
