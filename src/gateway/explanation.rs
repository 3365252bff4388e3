//! A question about a request, and what `bearward explain` says: the steps with their results, and the outcome.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use serde_json::{Value, json};

use crate::auth::bearer::MARKER;
use crate::types::reject::Reject;
use crate::types::step::Step;

/// A request that no client has sent.
pub struct Question {
    pub method: Method,
    /// Path and query.
    pub target: Uri,
    pub host: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub token: Option<String>,
    /// Where the request has the token: header, cookie:NAME, query:NAME or websocket.
    pub token_in: String,
}

impl Question {
    /// # Errors
    /// What is wrong with a part, for the one who asks.
    pub fn request(self) -> Result<Request<()>, String> {
        let mut request = Request::new(());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.target;
        let host = HeaderValue::from_str(&self.host).map_err(|_| "the host is not a valid header value")?;
        request.headers_mut().insert(header::HOST, host);
        for (name, value) in self.headers {
            request.headers_mut().append(name, value);
        }
        if let Some(token) = &self.token {
            add_token(&mut request, &self.token_in, token)?;
        }
        Ok(request)
    }
}

fn add_token(request: &mut Request<()>, place: &str, token: &str) -> Result<(), String> {
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
            let uri = request.uri();
            let separator = if uri.query().is_some() { '&' } else { '?' };
            let target = format!("{uri}{separator}{name}={token}").parse::<Uri>();
            *request.uri_mut() = target.map_err(|_| "the token is not a valid query parameter")?;
        }
        _ => {
            return Err(format!(
                "{place:?} is no place of a token: expected header, cookie:NAME, query:NAME or websocket"
            ));
        }
    }
    Ok(())
}

fn value(text: String) -> Result<HeaderValue, &'static str> {
    HeaderValue::from_str(&text).map_err(|_| "the token is not a valid header value")
}

/// The steps with their results, and the outcome.
pub struct Explanation {
    pub steps: Vec<(Step, String)>,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// The gateway forwards the request.
    Allowed,
    /// The gateway forwards the request, because its route has `enforce = false`.
    Observed(Arc<Reject>),
    Rejected(Reject),
    /// What decides is not known: the database cannot be read, or only a running gateway remembers it. The text says
    /// what the decision depends on.
    Unknown(String),
    /// The gateway responds itself. The text completes the sentence "the gateway itself …".
    Local(String),
}

impl Explanation {
    /// What to change, where the reason of the rejection tells.
    pub fn change(&self) -> Option<&'static str> {
        match &self.outcome {
            Outcome::Rejected(reject) => reject.reason.change(),
            Outcome::Allowed | Outcome::Observed(_) | Outcome::Unknown(_) | Outcome::Local(_) => None,
        }
    }

    pub fn to_json(&self) -> Value {
        let (decision, reject): (_, Option<&Reject>) = match &self.outcome {
            Outcome::Allowed => ("allowed", None),
            Outcome::Observed(reject) => ("observed", Some(reject)),
            Outcome::Rejected(reject) => ("rejected", Some(reject)),
            Outcome::Unknown(_) => ("unknown", None),
            Outcome::Local(_) => ("local", None),
        };
        let mut json = to_json(&self.steps, decision, reject);
        if let Outcome::Unknown(why) | Outcome::Local(why) = &self.outcome {
            json["detail"] = Value::from(why.as_str());
        }
        if let Some(change) = self.change() {
            json["change"] = Value::from(change);
        }
        json
    }
}

/// The steps and a decision as JSON.
pub fn to_json(steps: &[(Step, String)], decision: &str, reject: Option<&Reject>) -> Value {
    let steps = steps.iter().map(|(step, result)| json!({ "step": step.name(), "found": result }));
    json!({
        "steps": steps.collect::<Vec<_>>(),
        "decision": decision,
        "reason": reject.map(|reject| reject.reason.code()),
        "status": reject.map(|reject| reject.reason.status().as_u16()),
        "detail": reject.map(|reject| &*reject.detail),
    })
}
