//! `bearward explain --request-id`: why a running gateway rejected a request, or why its response broke off.

use http::{Method, StatusCode};
use serde_json::Value;

use super::admin_client::{CallError, send};
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::terminal::printable;

/// The members of the response, in the order of the lines.
const MEMBERS: [(&str, &str); 16] = [
    ("time", "time"),
    ("client", "client"),
    ("method", "method"),
    ("host", "host"),
    ("path", "path"),
    ("route", "route"),
    ("subject", "subject"),
    ("tokenId", "session"),
    ("clientId", "client id"),
    ("redirectUri", "redirect"),
    ("resource", "resource"),
    ("status", "status"),
    ("reason", "reason"),
    ("message", "message"),
    ("detail", "detail"),
    ("change", "change"),
];

/// Exit status 0 if the gateway knows the request, 3 if not.
pub(super) fn explain(config: &ConfigArgument, request_id: &str, as_json: bool) -> Result<(), CommandError> {
    if request_id.len() != 32 || !request_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(CommandError::invalid(format!("{request_id:?} is not a request id: it has 32 hexadecimal digits")));
    }
    let path = format!("/admin/v1/rejections/{}", request_id.to_ascii_lowercase());
    let (status, found) = send(&config.admin_socket()?, Method::GET, &path, None)?;
    match status {
        StatusCode::NOT_FOUND => {
            eprintln!(
                "request {request_id} is not among the newest requests that this gateway rejected, or with a response \
                 that broke off; look for it in the access log, or raise admin.recent_rejections"
            );
            return Err(CommandError::Unknown);
        }
        status if !status.is_success() => return Err(CallError::rejected(status, &found).into()),
        _ => {}
    }
    if as_json {
        say!("{found}")
    } else {
        print(&found)
    }
    Ok(())
}

fn print(rejection: &Value) {
    for (member, label) in MEMBERS {
        match rejection.get(member) {
            Some(Value::String(text)) => say!("{label:10}  {}", printable(text)),
            Some(value) => say!("{label:10}  {value}"),
            None => {}
        }
    }
    let has = |member: &str| rejection.get(member).is_some();
    let decision = match (has("broken"), has("observed")) {
        (true, _) => "forwarded; the response broke off",
        (false, true) => "forwarded, as the route does not enforce",
        (false, false) => "rejected",
    };
    say!("{:10}  {decision}", "decision");
}
