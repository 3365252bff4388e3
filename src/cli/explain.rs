//! `bearward explain`: what the gateway would say to a request, step by step.

use std::io::Read;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use serde_json::{Value, json};

use super::{ConfigArgument, Failed, load, shown};
use crate::app::explain::{Explainer, Explanation, Outcome};
use crate::bearer::MARKER;
use crate::clock::{Clock, SystemClock, UnixTime};
use crate::config::Probe;
use crate::reject::Reject;

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
    /// As if it were this time, in RFC 3339, as a line of the access log has it. Left out, it is now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<UnixTime>,
    #[arg(long)]
    json: bool,
}

/// The clock of one moment.
struct At(UnixTime);

impl Clock for At {
    fn now(&self) -> UnixTime {
        self.0
    }
}

/// Exit status 0 if the request would be let through, 1 if it would be refused.
pub(super) fn explain(arguments: Arguments) -> Result<(), Failed> {
    let config = load(&arguments.config.file, Probe::None)?;
    let request = request(&arguments)?;
    let clock: Arc<dyn Clock> = match arguments.at {
        Some(time) => Arc::new(At(time)),
        None => Arc::new(SystemClock),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let explanation = runtime.map_err(|error| error.to_string())?.block_on(async {
        let explainer = Explainer::prepare(&config, clock).await?;
        Ok::<_, String>(explainer.explain(&request, !arguments.cleartext).await)
    })?;
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
    for (step, found) in &explanation.steps {
        println!("{:10}  {}", step.name(), shown(found));
    }
    let decision = match &explanation.outcome {
        Outcome::Allowed => "allowed".to_owned(),
        Outcome::Observed(reject) => format!("allowed, as the route does not enforce: {}", refusal(reject)),
        Outcome::Refused(reject) => format!("refused: {}", refusal(reject)),
        Outcome::Own(what) => format!("the gateway answers itself: {what}"),
    };
    println!("{:10}  {}", "decision", shown(&decision));
}

fn refusal(reject: &Reject) -> String {
    let (status, code) = (reject.reason.status().as_u16(), reject.reason.code());
    let detail = if reject.detail.is_empty() { reject.reason.message() } else { &*reject.detail };
    format!("{status} {code}, {detail}")
}

fn as_json(explanation: &Explanation) -> Value {
    let steps = explanation.steps.iter().map(|(step, found)| json!({ "step": step.name(), "found": found }));
    let steps: Vec<Value> = steps.collect();
    let (decision, reject): (_, Option<&Reject>) = match &explanation.outcome {
        Outcome::Allowed => ("allowed", None),
        Outcome::Observed(reject) => ("observed", Some(reject)),
        Outcome::Refused(reject) => ("refused", Some(reject)),
        Outcome::Own(_) => ("own", None),
    };
    json!({
        "steps": steps,
        "decision": decision,
        "reason": reject.map(|reject| reject.reason.code()),
        "status": reject.map(|reject| reject.reason.status().as_u16()),
        "detail": reject.map(|reject| &*reject.detail),
    })
}

fn request(arguments: &Arguments) -> Result<Request<()>, Failed> {
    let wrong = |fault: String| Failed::Configuration(format!("error: {fault}\n"));
    let mut request = Request::new(());
    *request.method_mut() = arguments.method.clone();
    *request.uri_mut() = arguments.path.clone();
    let host = HeaderValue::from_str(&arguments.host).map_err(|_| wrong("--host is not a header value".into()))?;
    request.headers_mut().insert(header::HOST, host);
    for (name, value) in &arguments.headers {
        request.headers_mut().append(name, value.clone());
    }
    if arguments.token_stdin {
        let mut token = String::new();
        std::io::stdin().read_to_string(&mut token).map_err(|error| wrong(format!("standard input: {error}")))?;
        put(&mut request, &arguments.token_in, token.trim()).map_err(wrong)?;
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

fn time(text: &str) -> Result<UnixTime, String> {
    UnixTime::parse(text).ok_or_else(|| "expected a time as 2026-11-20T23:05:21Z".to_owned())
}
