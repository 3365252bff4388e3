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
    /// List the sessions of a subject, live and ended, or the live ones of a client or resource.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        #[command(flatten)]
        filter: ListFilter,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke one session, one access token, or all tokens of a subject, a client, an issuer or a session there.
    Revoke {
        #[command(flatten)]
        config: ConfigArgument,
        #[command(flatten)]
        target: RevokeTarget,
        /// The issuer of the tokens. Default: this gateway; with --all, every issuer.
        #[arg(long, conflicts_with_all = ["token_id", "client_id"])]
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
#[group(required = true, multiple = true)]
pub(super) struct ListFilter {
    /// The `sub` of the tokens.
    #[arg(long)]
    subject: Option<String>,
    /// The client of the tokens: its `client_id`.
    #[arg(long)]
    client_id: Option<String>,
    /// The protected resource that the tokens are for: a URL in their `aud`.
    #[arg(long, value_name = "URL")]
    resource: Option<String>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
pub(super) struct RevokeTarget {
    /// The token id of a session, or one of its refresh tokens.
    #[arg(conflicts_with_all = ["subject", "client_id", "jti", "session", "all"])]
    token_id: Option<String>,
    /// All tokens of this subject. With --client-id, those of this client alone.
    #[arg(long, conflicts_with_all = ["jti", "session", "all"])]
    subject: Option<String>,
    /// All tokens of this client, by its `client_id`.
    #[arg(long, conflicts_with_all = ["jti", "session", "all"])]
    client_id: Option<String>,
    /// One access token, by its `jti`.
    #[arg(long, conflicts_with_all = ["session", "all"])]
    jti: Option<String>,
    /// All tokens of this session at another issuer, by its `sid`, and the sessions that began there.
    #[arg(long, value_name = "SID", requires = "issuer", conflicts_with = "all")]
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
        TokenCommand::List { config, filter, json } => {
            let tokens = list(&config.admin_socket()?, filter)?;
            if json { say!("{tokens}") } else { print_table(&tokens) }
        }
        TokenCommand::Revoke { config, target, issuer, before, json } => {
            let result = revoke(&config.admin_socket()?, target, issuer, before)?;
            if json { say!("{result}") } else { say!("revoked") }
        }
    }
    Ok(())
}

/// All sessions of a subject, or the live ones that the filter finds.
fn list(admin: &Path, filter: ListFilter) -> Result<Value, CallError> {
    let ListFilter { subject, client_id, resource } = filter;
    if let (Some(subject), None, None) = (&subject, &client_id, &resource) {
        return call(admin, Method::GET, &format!("/admin/v1/subjects/{}/tokens", percent_encode(subject)), None);
    }
    let named = [("subject", subject), ("clientId", client_id), ("resource", resource)];
    let wanted = named.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", percent_encode(&value?))));
    let wanted: String = wanted.collect();
    let mut after = String::new();
    let mut tokens = Vec::new();
    loop {
        let page = call(admin, Method::GET, &format!("/admin/v1/tokens?limit=500{wanted}{after}"), None)?;
        tokens.extend(array_member(&page, "tokens").cloned());
        let Some(next) = page.get("next").and_then(Value::as_str) else { break };
        after = format!("&after={next}");
    }
    Ok(json!({ "tokens": tokens }))
}

fn revoke(
    admin: &Path,
    target: RevokeTarget,
    issuer: Option<String>,
    before: Option<String>,
) -> Result<Value, CallError> {
    let RevokeTarget { token_id, subject, client_id, jti, session, all } = target;
    if let Some(token_id) = token_id {
        let path = format!("/admin/v1/tokens/{}", percent_encode(&token_id));
        return call(admin, Method::DELETE, &path, None);
    }
    let body = json!({
        "sub": subject, "clientId": client_id, "jti": jti, "session": session, "all": all, "issuer": issuer,
        "before": before,
    });
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
        "{:22}  {:16}  {:24}  {:24}  {:15}  {:20}  {:20}  {:20}  label",
        "token id",
        "state",
        "created",
        "last used",
        "address",
        "scope",
        "subject",
        "client"
    );
    for token in array_member(tokens, "tokens") {
        let [id, state, reason, provider, created] =
            ["tokenId", "state", "reason", "provider", "createdAt"].map(|name| text_member(token, name));
        let [used, address, scope, label] =
            ["lastUsedAt", "address", "scope", "label"].map(|name| text_member(token, name));
        let [subject, client] = ["sub", "clientId"].map(|name| text_member(token, name));
        let why = [reason, provider].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let state = if why.is_empty() { state } else { format!("{state}: {why}") };
        say!(
            "{id:22}  {state:16}  {created:24}  {used:24}  {address:15}  {scope:20}  {subject:20}  {client:20}  {label}"
        );
    }
}
