//! The discovery document of an issuer (OpenID Connect Discovery, RFC 8414): the endpoints that it names.

use serde_json::{Map, Value};

use super::error::DiscoveryError;
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::json;

/// Maximum characters of a foreign issuer's name in an error message.
const SHOWN_ISSUER: usize = 200;

/// A document of the right issuer.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub members: Map<String, Value>,
    /// The reach of the server that sent it.
    reach: Reach,
}

/// Where a document says that an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub url: SecureUrl,
    /// The least reach of the server's address.
    pub reach: Reach,
}

impl Document {
    /// Its `issuer` must be exactly the configured one: with the document of another issuer, the tokens of this one
    /// would be verified with the keys of the other (RFC 8414 section 3.3, RFC 9207).
    pub(super) fn read(text: &str, issuer: &str, reach: Reach) -> Result<Self, DiscoveryError> {
        let members = json::object(text.as_bytes()).map_err(DiscoveryError::NotJson)?;
        match members.get("issuer").and_then(Value::as_str) {
            None => Err(DiscoveryError::NoIssuer),
            Some(found) if found != issuer => {
                let found = found.chars().take(SHOWN_ISSUER).collect();
                Err(DiscoveryError::OtherIssuer { found, expected: issuer.to_owned() })
            }
            Some(_) => Ok(Document { members, reach }),
        }
    }

    /// The URL must not lead into a nearer network than the server of the document was in, which is its `reach`: an
    /// issuer on the internet could otherwise send requests to services of this machine, also by a change of its own
    /// name in DNS. `hosts` are exempt, in lower case, because the operator chose them. `None` if the document does not
    /// name the endpoint, or as `null`.
    pub fn place(
        &self,
        member: &'static str,
        allow_http: bool,
        hosts: &[String],
    ) -> Result<Option<Place>, DiscoveryError> {
        let url = match self.members.get(member) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value.as_str().ok_or(DiscoveryError::NotText(member))?,
        };
        let url = SecureUrl::parse(url, allow_http).map_err(|fault| DiscoveryError::Url { member, fault })?;
        if hosts.iter().any(|host| url.host.eq_ignore_ascii_case(host)) {
            return Ok(Some(Place { url, reach: Reach::Loopback }));
        }
        if Reach::of_host(&url.host).is_some_and(|host| host < self.reach) {
            Err(DiscoveryError::Host { member, host: url.host })
        } else {
            Ok(Some(Place { url, reach: self.reach }))
        }
    }
}
