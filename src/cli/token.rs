//! `bearward token issue|list|revoke`: the tokens of a running gateway.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::admin_client::{CallError, call};
use super::chain_file;
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::percent::percent_encode;
use super::terminal::{array_member, text_member};
use crate::types::thumbprint::Thumbprint;

#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Start a session and print its first token pair.
    Issue {
        #[command(flatten)]
        config: ConfigArgument,
        /// The user or service that the token is for: its `sub`.
        #[arg(long)]
        subject: String,
        /// Scopes, separated by spaces.
        #[arg(long, default_value = "")]
        scope: String,
        /// Name of the session in a list of devices.
        #[arg(long, default_value = "")]
        label: String,
        /// The client that gets the token: its `client_id`.
        #[arg(long, default_value = "")]
        client_id: String,
        /// Bind the tokens to the key of a client (DPoP): the SHA-256 thumbprint of its public key, by RFC 7638.
        #[arg(long)]
        jkt: Option<String>,
        /// Bind the tokens to the certificate of a client (RFC 8705): a file in PEM.
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
        /// Print the token pair as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the sessions of a subject.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        /// The `sub` of the tokens.
        #[arg(long)]
        subject: String,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke one session, one access token, or all tokens of a subject, an issuer or a session there.
    Revoke {
        #[command(flatten)]
        config: ConfigArgument,
        #[command(flatten)]
        target: RevokeTarget,
        /// The issuer of the tokens. Default: this gateway; with --all, every issuer.
        #[arg(long, conflicts_with = "token_id")]
        issuer: Option<String>,
        /// Only sessions that began at or before this time, as 2026-11-20T23:05:21Z. Default: now.
        #[arg(long, value_name = "TIME", conflicts_with_all = ["token_id", "jti", "session"])]
        before: Option<String>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct RevokeTarget {
    /// The token id of a session, or one of its refresh tokens.
    token_id: Option<String>,
    /// All tokens of this subject.
    #[arg(long)]
    subject: Option<String>,
    /// One access token, by its `jti`.
    #[arg(long)]
    jti: Option<String>,
    /// All tokens of this session at another issuer, by its `sid`, and the sessions that began there.
    #[arg(long, value_name = "SID", requires = "issuer")]
    session: Option<String>,
    /// All tokens.
    #[arg(long)]
    all: bool,
}

pub(super) fn run(command: TokenCommand) -> Result<(), CommandError> {
    match command {
        TokenCommand::Issue { config, subject, scope, label, client_id, jkt, certificate, json } => {
            let mut body = json!({ "sub": subject, "scope": scope, "label": label, "clientId": client_id });
            if let Some(jkt) = jkt {
                body["jkt"] = json!(jkt);
            }
            if let Some(file) = certificate {
                let chain = chain_file::read(&file)?;
                let leaf = chain.first().map(|leaf| Thumbprint::of_certificate(leaf).to_string());
                body["x5t#S256"] = json!(leaf);
            }
            let pair = call(&config.admin_socket()?, Method::POST, "/admin/v1/tokens", Some(&body))?;
            if json { say!("{pair}") } else { print_pair(&pair) }
        }
        TokenCommand::List { config, subject, json } => {
            let path = format!("/admin/v1/subjects/{}/tokens", percent_encode(&subject));
            let tokens = call(&config.admin_socket()?, Method::GET, &path, None)?;
            if json { say!("{tokens}") } else { print_table(&tokens) }
        }
        TokenCommand::Revoke { config, target, issuer, before, json } => {
            let result = revoke(&config.admin_socket()?, target, issuer, before)?;
            if json { say!("{result}") } else { say!("revoked") }
        }
    }
    Ok(())
}

fn revoke(
    admin: &Path,
    target: RevokeTarget,
    issuer: Option<String>,
    before: Option<String>,
) -> Result<Value, CallError> {
    let RevokeTarget { token_id, subject, jti, session, all } = target;
    if let Some(token_id) = token_id {
        let path = format!("/admin/v1/tokens/{}", percent_encode(&token_id));
        return call(admin, Method::DELETE, &path, None);
    }
    let body =
        json!({ "sub": subject, "jti": jti, "session": session, "all": all, "issuer": issuer, "before": before });
    call(admin, Method::POST, "/admin/v1/revocations", Some(&body))
}

fn print_pair(pair: &Value) {
    for (title, member) in [("token id", "tokenId"), ("access token", "accessToken"), ("refresh token", "refreshToken")]
    {
        say!("{title:13}  {}", text_member(pair, member));
    }
}

fn print_table(tokens: &Value) {
    say!(
        "{:22}  {:16}  {:24}  {:24}  {:15}  {:20}  label",
        "token id",
        "state",
        "created",
        "last used",
        "address",
        "scope"
    );
    for token in array_member(tokens, "tokens") {
        let [id, state, reason, provider, created] =
            ["tokenId", "state", "reason", "provider", "createdAt"].map(|name| text_member(token, name));
        let [used, address, scope, label] =
            ["lastUsedAt", "address", "scope", "label"].map(|name| text_member(token, name));
        let why = [reason, provider].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let state = if why.is_empty() { state } else { format!("{state}: {why}") };
        say!("{id:22}  {state:16}  {created:24}  {used:24}  {address:15}  {scope:20}  {label}");
    }
}
