//! `bearward explain`: how the gateway decides about a request, step by step.

use http::uri::InvalidUri;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use serde_json::Value;

use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::rejection;
use super::report::{self, TimeArguments, read_token};
use crate::app::explain::{Explainer, Explanation, Outcome};
use crate::auth::bearer::MARKER;
use crate::config::Probe;
use crate::types::reject::Reject;

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Say why the running gateway rejected this request: the `requestId` of its response. Nothing else is needed.
    #[arg(long, value_name = "ID", conflicts_with_all = ["path", "host", "method", "token_stdin", "headers"])]
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
    #[command(flatten)]
    time: TimeArguments,
    /// Print the steps and the decision as JSON.
    #[arg(long)]
    json: bool,
}

/// Exit status 0 if the gateway would allow the request, 1 if it would reject it, 2 if there is no decision, 3 if the
/// database decides and cannot be read.
pub(super) fn run(arguments: Arguments) -> Result<(), CommandError> {
    if let Some(id) = &arguments.request_id {
        return rejection::explain(&arguments.config, id, arguments.json);
    }
    let config = arguments.config.load(Probe::None)?;
    let request = request(&arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let explanation = runtime.map_err(CommandError::invalid)?.block_on(async {
        let explainer = Explainer::prepare(&config, arguments.time.clock()).await.map_err(CommandError::invalid)?;
        Ok::<_, CommandError>(explainer.explain(&request, !arguments.cleartext).await)
    })?;
    match arguments.json {
        true => println!("{}", as_json(&explanation)),
        false => print(&explanation),
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
}

fn as_json(explanation: &Explanation) -> Value {
    let (decision, reject): (_, Option<&Reject>) = match &explanation.outcome {
        Outcome::Allowed => ("allowed", None),
        Outcome::Observed(reject) => ("observed", Some(reject)),
        Outcome::Rejected(reject) => ("rejected", Some(reject)),
        Outcome::Unknown(_) => ("unknown", None),
        Outcome::Local(_) => ("local", None),
    };
    report::as_json(&explanation.steps, decision, reject)
}

fn request(arguments: &Arguments) -> Result<Request<()>, CommandError> {
    let mut request = Request::new(());
    *request.method_mut() = arguments.method.clone();
    *request.uri_mut() = arguments.path.clone();
    let host = HeaderValue::from_str(&arguments.host);
    let host = host.map_err(|_| CommandError::invalid("--host is not a valid header value"))?;
    request.headers_mut().insert(header::HOST, host);
    for (name, value) in &arguments.headers {
        request.headers_mut().append(name, value.clone());
    }
    if arguments.token_stdin {
        add_token(&mut request, &arguments.token_in, &read_token()?)?;
    }
    Ok(request)
}

fn add_token(request: &mut Request<()>, place: &str, token: &str) -> Result<(), CommandError> {
    let headers = request.headers_mut();
    match place.split_once(':') {
        None if place == "header" => drop(headers.append(header::AUTHORIZATION, value(format!("Bearer {token}"))?)),
        None if place == "websocket" => {
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, value(format!("{MARKER}, {token}"))?);
            headers.append(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.append(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        Some(("cookie", name)) => drop(headers.append(header::COOKIE, value(format!("{name}={token}"))?)),
        Some(("query", name)) => {
            let target = with_parameter(request.uri(), name, token);
            *request.uri_mut() =
                target.map_err(|_| CommandError::invalid("the token is not a valid query parameter"))?;
        }
        _ => {
            let places = "expected header, cookie:NAME, query:NAME or websocket";
            return Err(CommandError::invalid(format!("--token-in {place}: {places}")));
        }
    }
    Ok(())
}

fn value(text: String) -> Result<HeaderValue, CommandError> {
    HeaderValue::from_str(&text).map_err(|_| CommandError::invalid("the token is not a valid header value"))
}

fn with_parameter(uri: &Uri, name: &str, value: &str) -> Result<Uri, InvalidUri> {
    let separator = if uri.query().is_some() { '&' } else { '?' };
    format!("{uri}{separator}{name}={value}").parse()
}

fn header_field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected \"Name: value\"")?;
    let name = name.parse().map_err(|_| format!("{name:?} is not a valid header name"))?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| "not a valid header value".to_owned())?;
    Ok((name, value))
}
