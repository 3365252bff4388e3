//! `bearward explain`: how the gateway decides about a request, step by step.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Method, Uri};

use super::chain_file;
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::rejection;
use super::report::{self, TimeArguments, read_token};
use crate::app::explain::Explainer;
use crate::config::Probe;
use crate::gateway::explanation::{Explanation, Outcome, Question};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Say why the running gateway rejected this request, or why its response broke off: the `requestId` of its
    /// response, or of its line in the access log. Nothing else is needed. Exit with 0 if the gateway knows the
    /// request, with 3 if not.
    #[arg(long, value_name = "ID", conflicts_with_all = [
        "path", "host", "method", "token_stdin", "token_in", "headers", "cleartext", "certificate", "at",
    ])]
    request_id: Option<String>,
    /// The request method.
    #[arg(long, default_value = "GET")]
    method: Method,
    /// Path and query.
    #[arg(long, default_value = "/")]
    path: Uri,
    /// The `Host` header.
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Read a token from standard input. Arguments are readable by other users, so they must not hold one.
    #[arg(long)]
    token_stdin: bool,
    /// Where the request has the token: header, cookie:NAME, query:NAME or websocket.
    #[arg(long, value_name = "PLACE", default_value = "header")]
    token_in: String,
    /// Another header of the request, as "Origin: https://app.example". Can be repeated.
    #[arg(long = "header", value_name = "FIELD", value_parser = header_field)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The request arrives without TLS.
    #[arg(long)]
    cleartext: bool,
    /// The certificate that the client shows, with its chain: a file in PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "cleartext")]
    certificate: Option<PathBuf>,
    #[command(flatten)]
    time: TimeArguments,
    /// Print the steps and the decision as JSON.
    #[arg(long)]
    json: bool,
}

/// Exit status 0 if the gateway would allow the request, 1 if it would reject it, 2 if there is no decision, 3 if the
/// database decides and cannot be read, or only the running gateway knows.
pub(super) fn run(arguments: Arguments) -> Result<(), CommandError> {
    if let Some(id) = &arguments.request_id {
        return rejection::explain(&arguments.config, id, arguments.json);
    }
    let config = arguments.config.load(Probe::None)?;
    let shown = arguments.certificate.as_deref().map(chain_file::read).transpose()?;
    let request = question(&arguments)?.request().map_err(CommandError::invalid)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let explanation = runtime.map_err(CommandError::invalid)?.block_on(async {
        let explainer = Explainer::prepare(&config, arguments.time.clock()).await.map_err(CommandError::invalid)?;
        Ok::<_, CommandError>(explainer.showing(shown).explain(&request, !arguments.cleartext).await)
    })?;
    if arguments.json {
        say!("{}", explanation.to_json())
    } else {
        print(&explanation)
    }
    match explanation.outcome {
        Outcome::Rejected(_) => Err(CommandError::Negative),
        Outcome::Unknown(_) => Err(CommandError::Unknown),
        Outcome::Allowed | Outcome::Observed(_) | Outcome::Local(_) => Ok(()),
    }
}

fn print(explanation: &Explanation) {
    report::print_steps(&explanation.steps);
    let decision = match &explanation.outcome {
        Outcome::Allowed => "allowed".to_owned(),
        Outcome::Observed(reject) => format!("allowed, as the route does not enforce: {}", report::describe(reject)),
        Outcome::Rejected(reject) => format!("rejected: {}", report::describe(reject)),
        Outcome::Unknown(why) => format!("unknown: {why}"),
        Outcome::Local(action) => format!("the gateway itself {action}"),
    };
    report::print_decision(&decision);
    if let Some(change) = explanation.change() {
        say!("{:10}  {change}", "change");
    }
}

fn question(arguments: &Arguments) -> Result<Question, CommandError> {
    Ok(Question {
        method: arguments.method.clone(),
        target: arguments.path.clone(),
        host: arguments.host.clone(),
        headers: arguments.headers.clone(),
        token: arguments.token_stdin.then(read_token).transpose()?,
        token_in: arguments.token_in.clone(),
    })
}

fn header_field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected \"Name: value\"")?;
    let name = name.parse().map_err(|_| format!("{name:?} is not a valid header name"))?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| "not a valid header value".to_owned())?;
    Ok((name, value))
}
