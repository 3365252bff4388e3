//! `bearward token issue|list|revoke`, through the admin listener: it works while the gateway runs.

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::client::call;
use super::{ConfigArgument, Failed, load_admin, shown};

#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token family and print its first pair.
    Issue {
        #[command(flatten)]
        config: ConfigArgument,
        /// Whom the token speaks for.
        #[arg(long)]
        subject: String,
        /// Scopes, separated by spaces.
        #[arg(long, default_value = "")]
        scope: String,
        /// What a list of devices shows.
        #[arg(long, default_value = "")]
        label: String,
        /// The client the token is issued to.
        #[arg(long, default_value = "")]
        client_id: String,
        #[arg(long)]
        json: bool,
    },
    /// List the families of a subject.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        #[arg(long)]
        subject: String,
        #[arg(long)]
        json: bool,
    },
    /// End a login at once; or all of a subject, of an issuer, of everybody; or one access token.
    Revoke {
        #[command(flatten)]
        config: ConfigArgument,
        #[command(flatten)]
        whom: RevokeTarget,
        /// Of another issuer than this gateway; with --all, nobody else's.
        #[arg(long, conflicts_with = "token_id")]
        issuer: Option<String>,
        /// Only what was issued at this time or before, as 2026-11-20T23:05:21Z. Left out: until now.
        #[arg(long, value_name = "TIME", conflicts_with_all = ["token_id", "jti"])]
        before: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct RevokeTarget {
    /// The token id of a login, or a whole refresh token of it.
    token_id: Option<String>,
    /// Everything of this subject.
    #[arg(long)]
    subject: Option<String>,
    /// One access token, by its `jti`.
    #[arg(long)]
    jti: Option<String>,
    /// Everything there is.
    #[arg(long)]
    all: bool,
}

pub(super) fn run(command: TokenCommand) -> Result<(), Failed> {
    match command {
        TokenCommand::Issue { config, subject, scope, label, client_id, json } => {
            let admin = load_admin(&config.file)?;
            let wanted = json!({ "sub": subject, "scope": scope, "label": label, "clientId": client_id });
            let pair = call(&admin, Method::POST, "/admin/v1/tokens", Some(&wanted))?;
            if json {
                print_json(&pair);
            } else {
                for (title, member) in
                    [("token id", "tokenId"), ("access token", "accessToken"), ("refresh token", "refreshToken")]
                {
                    println!("{title:13}  {}", text(&pair, member));
                }
            }
        }
        TokenCommand::List { config, subject, json } => {
            let admin = load_admin(&config.file)?;
            let path = format!("/admin/v1/subjects/{}/tokens", percent_encode(&subject));
            let answer = call(&admin, Method::GET, &path, None)?;
            if json { print_json(&answer) } else { print_table(&answer) }
        }
        TokenCommand::Revoke { config, whom, issuer, before, json } => {
            let admin = load_admin(&config.file)?;
            let answer = match &whom.token_id {
                Some(token_id) => {
                    let path = format!("/admin/v1/tokens/{}", percent_encode(token_id));
                    call(&admin, Method::DELETE, &path, None)?
                }
                None => {
                    let RevokeTarget { subject, jti, all, .. } = whom;
                    let wanted = json!({ "sub": subject, "jti": jti, "all": all, "issuer": issuer, "before": before });
                    call(&admin, Method::POST, "/admin/v1/revocations", Some(&wanted))?
                }
            };
            if json { print_json(&answer) } else { println!("revoked") }
        }
    }
    Ok(())
}

fn print_json(value: &Value) {
    println!("{value}");
}

fn print_table(answer: &Value) {
    println!(
        "{:22}  {:16}  {:24}  {:24}  {:15}  {:20}  label",
        "token id", "state", "created", "last used", "address", "scope"
    );
    for token in answer.get("tokens").and_then(Value::as_array).into_iter().flatten() {
        let [id, state, reason, created] =
            ["tokenId", "state", "reason", "createdAt"].map(|member| text(token, member));
        let [used, address, scope, label] =
            ["lastUsedAt", "address", "scope", "label"].map(|member| text(token, member));
        let state = if reason.is_empty() { state } else { format!("{state}: {reason}") };
        println!("{id:22}  {state:16}  {created:24}  {used:24}  {address:15}  {scope:20}  {label}");
    }
}

fn text(value: &Value, member: &str) -> String {
    shown(value.get(member).and_then(Value::as_str).unwrap_or_default())
}

/// One path segment (RFC 3986 section 3.3).
fn percent_encode(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    segment
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
