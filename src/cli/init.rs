//! `bearward init`: writes a first `gateway.toml`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::error::CommandError;
use super::output::{say, write};
use super::terminal::{printable, printable_line};
use crate::auth::keyring;
use crate::config::{self, ConfigError, Probe};
use crate::protocols::url::{SecureUrl, UrlError};
use crate::tokens::jwt::algorithm_name;
use crate::types::reject::with_causes;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// URL of the service behind the gateway, such as http://127.0.0.1:3000.
    #[arg(long, value_name = "URL")]
    backend: String,
    /// Accept the tokens of this issuer. Its discovery document and keys are fetched now.
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The `aud` that this issuer gives to tokens for this gateway. Default: the URL of the gateway.
    #[arg(long, value_name = "TEXT", requires = "issuer")]
    audience: Option<String>,
    /// The name by which clients reach the gateway, such as api.example.com. Default: localhost, for trials.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The new file, or "-" for standard output. An existing file is never overwritten.
    #[arg(long, value_name = "FILE", default_value = "gateway.toml")]
    output: PathBuf,
}

pub(super) fn run(arguments: Arguments) -> Result<(), CommandError> {
    arguments.domain.as_deref().map(domain).transpose()?;
    let output = &arguments.output;
    let is_stdout = output == Path::new("-");
    if !is_stdout && output.symlink_metadata().is_ok() {
        return Err(exists(output));
    }
    let algorithms = arguments.issuer.as_deref().map(algorithms).transpose()?.unwrap_or_default();
    let text = text(&arguments, &algorithms);
    check(&text, if is_stdout { Path::new("") } else { output.parent().unwrap_or(Path::new("")) })?;
    if is_stdout {
        write(format_args!("{text}"));
        return Ok(());
    }
    write_new(output, &text)?;
    let file = printable(&output.display().to_string());
    say!("wrote {file}; next:");
    say!("  bearward check --config {file}      # reports every error");
    say!("  bearward serve --config {file}      # runs the gateway");
    say!("  curl --insecure https://localhost:8443/      # gets 401: a request needs a token");
    Ok(())
}

/// The name becomes a part of a URL, which would allow more.
fn domain(name: &str) -> Result<(), CommandError> {
    let is_label = |label: &str| {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..64).contains(&label.len()) && label.bytes().all(is_word) && !label.starts_with('-') && !label.ends_with('-')
    };
    if name.len() < 254 && name.split('.').all(is_label) {
        Ok(())
    } else {
        Err(CommandError::invalid(
            "--domain: this is not a domain name; write only the name, such as api.example.com".to_owned(),
        ))
    }
}

/// The algorithms of the issuer's keys, as in `issuer.algorithms`.
fn algorithms(issuer: &str) -> Result<Vec<&'static str>, CommandError> {
    let help = "check the URL, or leave out --issuer and add [[issuer]] later";
    let failed = |why: String| CommandError::failed(format!("--issuer {}: {why}; {help}", printable(issuer)));
    // Without the URL, which may have a password or another secret.
    let rejected = |why: UrlError| CommandError::failed(format!("--issuer: {why}; {help}"));
    let urls = SecureUrl::well_known(issuer, false).map_err(rejected)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let found = runtime.block_on(keyring::algorithms(issuer, &urls));
    let found = found.map_err(|error| failed(printable_line(&with_causes(&error))))?;
    Ok(found.into_iter().map(algorithm_name).collect())
}

fn text(arguments: &Arguments, algorithms: &[&str]) -> String {
    let url = match &arguments.domain {
        Some(domain) => format!("https://{domain}"),
        None => "https://localhost:8443".to_owned(),
    };
    let mut text = String::from("# bearward: `bearward check --effective` prints every key with its value.\n\n");
    if arguments.domain.is_some() {
        text.push_str("# Write the certificate of the domain here. Until then, it is one for localhost, for trials.\n");
        text.push_str("[[listener]]\naddress = \"0.0.0.0:8443\"\n");
        text.push_str("# tls = { certificate = \"tls/fullchain.pem\", key = \"tls/key.pem\" }\n\n");
    }
    let _ = write!(text, "[[upstream]]\nservers = [{}]\n\n", quoted(&arguments.backend));
    text.push_str("# The URL at which clients reach the gateway. Set it before you issue real tokens.\n");
    let _ = writeln!(text, "[tokens]\nissuer = {}", quoted(&url));
    if let Some(issuer) = &arguments.issuer {
        let audience = arguments.audience.as_deref().unwrap_or(&url);
        text.push_str(
            "\n# Its tokens are accepted if they have this `aud`, and `typ` at+jwt. Others: `types = [\"JWT\"]`.\n",
        );
        let _ = writeln!(text, "[[issuer]]\nissuer = {}\naudience = [{}]", quoted(issuer), quoted(audience));
        let names: Vec<String> = algorithms.iter().map(|name| quoted(name)).collect();
        let _ = writeln!(text, "algorithms = [{}]\ndiscover = true", names.join(", "));
    }
    text
}

/// A string of JSON is one of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reports what is wrong with the arguments, by the checks of the file.
fn check(text: &str, folder: &Path) -> Result<(), CommandError> {
    let Err(errors) = config::parse(text, folder, Probe::None) else { return Ok(()) };
    let lines: Vec<String> = errors.all().iter().map(explain).collect();
    Err(CommandError::invalid(lines.join("\n")))
}

fn explain(error: &ConfigError) -> String {
    let option = match error.place.key.as_str() {
        key if key.starts_with("upstream") => "--backend",
        key if key.ends_with(".audience") || key.contains(".audience[") => "--audience",
        key if key.starts_with("issuer") => "--issuer",
        key if key.starts_with("tokens") => "--domain",
        key => key,
    };
    let advice = if error.help.is_empty() { &error.expected } else { &error.help };
    printable_line(&format!("{option}: {}; {advice}", error.message))
}

fn write_new(output: &Path, text: &str) -> Result<(), CommandError> {
    let file = OpenOptions::new().write(true).create_new(true).open(output);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(output),
        _ => {
            CommandError::failed(format!("cannot write {}: {error}; name another file with --output", output.display()))
        }
    })
}

fn exists(output: &Path) -> CommandError {
    CommandError::failed(format!(
        "{} exists, and init overwrites nothing; name another file with --output, or remove it",
        printable(&output.display().to_string())
    ))
}
