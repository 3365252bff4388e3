//! `bearward keys list|rotate|revoke`, through the admin listener: the keys of a gateway that runs.

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::client::call;
use super::{ConfigArgument, Failed, load, load_admin, shown};
use crate::app;
use crate::config::Probe;

#[derive(Subcommand)]
pub(super) enum KeysCommand {
    /// List the keys that sign, will sign, and did.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        #[arg(long)]
        json: bool,
    },
    /// Publish the next key; it signs after tokens.key_ahead.
    Rotate {
        #[command(flatten)]
        config: ConfigArgument,
        /// It signs at once. Whoever else checks these tokens may refuse them until it has fetched the keys again.
        #[arg(long)]
        now: bool,
        /// Add a root secret to store.secret_file instead: it counts from the next start on, and seals the keys anew.
        #[arg(long, conflicts_with = "now")]
        root: bool,
        #[arg(long)]
        json: bool,
    },
    /// End a key at once: every token that it signed is refused, and another key signs.
    Revoke {
        #[command(flatten)]
        config: ConfigArgument,
        /// As `keys list` and the `kid` of a token have it.
        #[arg(allow_hyphen_values = true)]
        kid: String,
        /// Clients may still refresh with its tokens. Without this, those that have no other token log in again.
        #[arg(long)]
        may_refresh: bool,
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: KeysCommand) -> Result<(), Failed> {
    let (answer, json) = match command {
        KeysCommand::List { config, json } => {
            let admin = load_admin(&config.file)?;
            (call(&admin, Method::GET, "/admin/v1/keys", None)?, json)
        }
        KeysCommand::Rotate { config, root: true, json, .. } => {
            let source = load(&config.file, Probe::None)?.store.secret;
            let number = app::add_root(&source)?;
            match json {
                true => println!("{}", json!({ "root": number })),
                false => println!("added root secret {number} to {source}; restart the gateway to put it in force"),
            }
            return Ok(());
        }
        KeysCommand::Rotate { config, now, json, .. } => {
            let admin = load_admin(&config.file)?;
            (call(&admin, Method::POST, "/admin/v1/keys/rotate", Some(&json!({ "now": now })))?, json)
        }
        KeysCommand::Revoke { config, kid, may_refresh, json } => {
            let admin = load_admin(&config.file)?;
            let path = format!("/admin/v1/keys/{}/revoke", segment(&kid)?);
            (call(&admin, Method::POST, &path, Some(&json!({ "mayRefresh": may_refresh })))?, json)
        }
    };
    if json {
        println!("{answer}")
    } else {
        print_table(&answer)
    }
    Ok(())
}

/// A thumbprint is base64url, which a path takes as it is.
fn segment(kid: &str) -> Result<&str, Failed> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !kid.is_empty() && kid.bytes().all(plain) {
        true => Ok(kid),
        false => Err(super::wrong(format!("{kid:?} is no kid: see `bearward keys list`"))),
    }
}

fn print_table(answer: &Value) {
    println!("{:43}  {:9}  {:12}  {:24}  {:24}  ended", "kid", "algorithm", "state", "created", "signs since");
    for key in answer.get("keys").and_then(Value::as_array).into_iter().flatten() {
        let [kid, algorithm, state, created] =
            ["kid", "algorithm", "state", "createdAt"].map(|member| text(key, member));
        let [activated, retired, revoked] = ["activatedAt", "retiredAt", "revokedAt"].map(|member| text(key, member));
        let ended = if revoked.is_empty() { retired } else { revoked };
        println!("{kid:43}  {algorithm:9}  {state:12}  {created:24}  {activated:24}  {ended}");
    }
    match answer.get("nextRotation").and_then(Value::as_str) {
        Some(time) => println!("the next key signs from {} on", shown(time)),
        None => println!("tokens.signing_key_file is not rotated"),
    }
}

fn text(value: &Value, member: &str) -> String {
    shown(value.get(member).and_then(Value::as_str).unwrap_or_default())
}
