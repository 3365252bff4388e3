//! `POST /admin/v1/explain`: how the running gateway decides about a request, step by step.
//!
//! | request | response |
//! |---|---|
//! | `POST /admin/v1/explain` `{"token"?, "path"?, …}` | 200, `{"decision", "steps": […], …}` |
//!
//! The token is neither kept nor returned. Nothing is counted: no rate, no wrong signature.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use serde::Deserialize;

use super::body::read_object;
use super::explainer::Asked;
use crate::admin::state::Admin;
use crate::gateway::explanation::Question;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::protocols::tls::client_chain;
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/explain";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExplainRequest {
    token: Option<String>,
    token_in: Option<String>,
    method: Option<String>,
    path: Option<String>,
    host: Option<String>,
    /// By name.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    client: Option<IpAddr>,
    #[serde(default)]
    cleartext: bool,
    /// In PEM.
    certificate: Option<String>,
}

pub(crate) async fn handle(admin: &Admin, request: Request<Incoming>) -> Result<Response<Body>, Reject> {
    if *request.method() != Method::POST {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("POST"));
    }
    let asked = asked(read_object(request).await?).map_err(|error| Reject::new(Reason::BadParameter, error))?;
    let explanation = admin.explainer.explain(asked).await;
    Ok(respond::json(StatusCode::OK, &explanation.to_json()))
}

fn asked(body: ExplainRequest) -> Result<Asked, String> {
    let field = |(name, value): (&String, &String)| {
        let name = name.parse::<HeaderName>().map_err(|_| format!("headers: {name:?} is not a valid name"))?;
        let value = HeaderValue::from_str(value).map_err(|_| format!("headers: the value of {name} is not valid"))?;
        Ok::<_, String>((name, value))
    };
    let question = Question {
        method: body.method.map_or(Ok(Method::GET), |method| method.parse()).map_err(|_| "method: not a method")?,
        target: body.path.map_or(Ok(Uri::default()), |path| path.parse()).map_err(|_| "path: not a path")?,
        host: body.host.unwrap_or_else(|| "localhost".to_owned()),
        headers: body.headers.iter().map(field).collect::<Result<_, _>>()?,
        token: body.token,
        token_in: body.token_in.unwrap_or_else(|| "header".to_owned()),
    };
    let chain = |text: &String| client_chain(text.as_bytes()).ok_or("certificate: expected PEM, the leaf first");
    let certificate = body.certificate.as_ref().map(chain).transpose()?;
    if certificate.is_some() && body.cleartext {
        return Err("certificate: a request without TLS has none".to_owned());
    }
    Ok(Asked {
        request: question.request()?,
        client: body.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        tls: !body.cleartext,
        certificate,
    })
}
