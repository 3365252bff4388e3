//! `bearward explain`: what the gateway would say to a request, step by step.

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use serde_json::Value;

use super::report::{self, TimeArguments, read_token};
use super::{ConfigArgument, Failed, load, wrong};
use crate::app::explain::{Explainer, Explanation, Outcome};
use crate::auth::bearer::MARKER;
use crate::config::Probe;
use crate::types::reject::Reject;

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    #[arg(long, default_value = "GET")]
    method: Method,
    /// With its query, if it has one.
    #[arg(long, default_value = "/")]
    path: Uri,
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Read a token from standard input. A command line is no place for one: other users can read it.
    #[arg(long)]
    token_stdin: bool,
    /// Where the token is put: header, cookie:NAME, query:NAME or websocket.
    #[arg(long, value_name = "PLACE", default_value = "header")]
    token_in: String,
    /// More of the request, as "Origin: https://app.example".
    #[arg(long = "header", value_name = "FIELD", value_parser = field)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The request comes without TLS.
    #[arg(long)]
    cleartext: bool,
    #[command(flatten)]
    when: TimeArguments,
    #[arg(long)]
    json: bool,
}

/// Exit status 0 if the request would be let through, 1 if it would be refused, 2 if that cannot be said.
pub(super) fn explain(arguments: Arguments) -> Result<(), Failed> {
    let config = load(&arguments.config.file, Probe::None)?;
    let request = request(&arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let explained = runtime.map_err(|error| wrong(error.to_string()))?.block_on(async {
        let explainer = Explainer::prepare(&config, arguments.when.clock()).await?;
        Ok(explainer.explain(&request, !arguments.cleartext).await)
    });
    let explanation = explained.map_err(wrong)?;
    match arguments.json {
        true => println!("{}", as_json(&explanation)),
        false => print(&explanation),
    }
    match explanation.outcome {
        Outcome::Refused(_) => Err(Failed::Answered),
        Outcome::Allowed | Outcome::Observed(_) | Outcome::Own(_) => Ok(()),
    }
}

fn print(explanation: &Explanation) {
    report::print_steps(&explanation.steps);
    let decision = match &explanation.outcome {
        Outcome::Allowed => "allowed".to_owned(),
        Outcome::Observed(reject) => format!("allowed, as the route does not enforce: {}", report::refusal(reject)),
        Outcome::Refused(reject) => format!("refused: {}", report::refusal(reject)),
        Outcome::Own(what) => format!("the gateway answers itself: {what}"),
    };
    report::print_decision(&decision);
}

fn as_json(explanation: &Explanation) -> Value {
    let (decision, reject): (_, Option<&Reject>) = match &explanation.outcome {
        Outcome::Allowed => ("allowed", None),
        Outcome::Observed(reject) => ("observed", Some(reject)),
        Outcome::Refused(reject) => ("refused", Some(reject)),
        Outcome::Own(_) => ("own", None),
    };
    report::as_json(&explanation.steps, decision, reject)
}

fn request(arguments: &Arguments) -> Result<Request<()>, Failed> {
    let mut request = Request::new(());
    *request.method_mut() = arguments.method.clone();
    *request.uri_mut() = arguments.path.clone();
    let host = HeaderValue::from_str(&arguments.host).map_err(|_| wrong("--host is not a header value".into()))?;
    request.headers_mut().insert(header::HOST, host);
    for (name, value) in &arguments.headers {
        request.headers_mut().append(name, value.clone());
    }
    if arguments.token_stdin {
        put(&mut request, &arguments.token_in, &read_token()?).map_err(wrong)?;
    }
    Ok(request)
}

fn put(request: &mut Request<()>, place: &str, token: &str) -> Result<(), String> {
    let value = |text: String| HeaderValue::from_str(&text).map_err(|_| "the token is not a header value".to_owned());
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
            let mark = if request.uri().query().is_some() { '&' } else { '?' };
            let target = format!("{}{mark}{name}={token}", request.uri());
            *request.uri_mut() = target.parse().map_err(|_| "the token does not fit into a query".to_owned())?;
        }
        _ => return Err(format!("--token-in {place}: expected header, cookie:NAME, query:NAME or websocket")),
    }
    Ok(())
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected \"Name: value\"")?;
    let name = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| "not the value of a header".to_owned())?;
    Ok((name, value))
}
