//! The JSON object in the body of an admin request.
//!
//! The parser is strict, because claims in the object end up in tokens: JSON that is rejected in a token is rejected
//! here.

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::admin::settings::READ_TIMEOUT;
use crate::broker::BODY_LIMIT;
use crate::protocols::http::body::{self, Body};
use crate::tokens::jwt::json;
use crate::types::reject::{Reason, Reject};

pub(super) async fn read_object<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Reject> {
    parse(&read(request).await?)
}

/// As [`read_object`]. An empty body means the default of every member.
pub(super) async fn read_optional_object<T: DeserializeOwned + Default>(
    request: Request<Incoming>,
) -> Result<T, Reject> {
    let content = read(request).await?;
    if content.is_empty() { Ok(T::default()) } else { parse(&content) }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Reject> {
    let mut incoming = Body::incoming(request.into_body());
    let read = tokio::time::timeout(READ_TIMEOUT, body::read(&mut incoming, BODY_LIMIT)).await;
    read.unwrap_or_else(|_| Err(Reject::new(Reason::BodyTimeout, format!("not complete within {READ_TIMEOUT:?}"))))
}

fn parse<T: DeserializeOwned>(content: &[u8]) -> Result<T, Reject> {
    let invalid = |error: String| Reject::new(Reason::BadParameter, error);
    let object = json::object(content).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_value(object.into()).map_err(|error| invalid(error.to_string()))
}
