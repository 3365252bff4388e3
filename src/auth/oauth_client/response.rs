//! The response of an OAuth endpoint.

use bytes::{Buf, Bytes};
use http::response::Parts;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value};

use super::error::OAuthClientError;
use crate::protocols::http::{content_coding, media_type};
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::json;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Maximum characters of an error code that are kept: it comes from another server.
const ERROR_SIZE: usize = 100;

/// Any response but a redirect has its body. No `Debug`: it can have tokens.
pub struct OAuthResponse {
    pub status: StatusCode,
    /// In lower case, without parameters. Empty if there is none, or several.
    pub media_type: String,
    pub body: Bytes,
}

/// The response cannot be read.
pub(super) struct Unreadable(HeaderValue);

impl Unreadable {
    pub(super) fn of(self, url: &SecureUrl) -> OAuthClientError {
        OAuthClientError::ContentEncoding { url: url.clone(), coding: self.0 }
    }
}

pub(super) fn is_read(head: &Parts) -> bool {
    !head.status.is_redirection()
}

/// Returns true for a body that no coding has changed, whatever its header says: some servers name a character set, or
/// `none`.
fn is_text_of_object(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{") && str::from_utf8(body).is_ok()
}

impl OAuthResponse {
    pub(super) fn of(response: Response<Bytes>) -> Result<Self, Unreadable> {
        let (head, mut body) = response.into_parts();
        // Some servers write one, and readers may ignore it (RFC 8259 section 8.1).
        if body.starts_with(BYTE_ORDER_MARK) {
            body.advance(BYTE_ORDER_MARK.len());
        }
        if let Some(coding) = content_coding::other_than_identity(&head.headers)
            && !is_text_of_object(&body)
        {
            return Err(Unreadable(coding.clone()));
        }
        let media_type = media_type::of(&head.headers).unwrap_or_default().to_ascii_lowercase();
        Ok(OAuthResponse { status: head.status, media_type, body })
    }

    /// The JSON object of a successful response. `None` for anything else: a page of HTML with status 200 is none.
    pub fn object(&self) -> Option<Map<String, Value>> {
        let is_json = self.media_type == "application/json" || self.media_type.ends_with("+json");
        if self.status == StatusCode::OK && is_json { json::object(&self.body).ok() } else { None }
    }

    /// The `error` of a rejection (RFC 6749 section 5.2). `None` if it has none.
    pub fn error(&self) -> Option<String> {
        if self.status.is_success() {
            return None;
        }
        let object = json::object(&self.body).ok()?;
        let code = object.get("error")?.as_str()?;
        let is_code = code.len() <= ERROR_SIZE && code.bytes().all(|byte| byte.is_ascii_graphic());
        is_code.then(|| code.to_owned())
    }
}
