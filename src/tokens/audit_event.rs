//! Audit events: who did what with which token, when and from where.
//!
//! The store writes an [`Event`] in the same transaction as the change, so that there is an event for each change, and
//! none for a change that was rolled back. `telemetry/audit_log` delivers the events. An event contains no token and no
//! secret.
//!
//! | event | when |
//! |---|---|
//! | `token.issued` | a user logged in |
//! | `authorization.granted` | a client redeemed the code that a user granted, and its session began |
//! | `authorization.denied` | a user declined the request of a client |
//! | `client.seen` | the first `authorization.granted` of this client for this user that the store remembers |
//! | `code.reused` | an authorization code was redeemed a second time, and the session of the first use was ended |
//! | `token.refreshed` | a refresh created a new generation |
//! | `refresh.replayed` | a repeated refresh got the same refresh token again, within `refresh_grace` |
//! | `refresh.recovered` | a repeated refresh got the same refresh token, later, because the client had not used them |
//! | `refresh.repeated` | a client that proved its key got the newest refresh token for an older one |
//! | `refresh.superseded` | a spent refresh token of a grant was rejected, and its session goes on (`oauth.reuse`) |
//! | `refresh.conflict` | a refresh with an older token was rejected, within `refresh_grace` |
//! | `refresh.reuse_detected` | a spent refresh token was used again, and its session was ended |
//! | `refresh.binding_mismatch` | access token and refresh token belong to different sessions |
//! | `refresh.denied` | any other refresh of a known session was rejected; `reason` as in the access log |
//! | `token.revoked` | a session was ended; `reason`: by its owner, an operator, a new `grant`, or the limit of sessions |
//! | `provider_login.refreshed` | the tokens of a login at a provider were refreshed there |
//! | `api_key.issued` | an operator issued an API key |
//! | `api_key.revoked` | an API key was revoked; `reason`: by its owner or an operator |
//! | `access_token.revoked` | an operator revoked one access token |
//! | `issuer_session.revoked` | a session at another issuer was revoked: by its `sid`, by an operator or that issuer |
//! | `subject.revoked`, `issuer.revoked`, `everything.revoked` | an operator revoked all tokens up to `before` |
//! | `client.revoked` | an operator revoked all tokens of a client up to `before`; with `subject`, those of this user |
//! | `key.created`, `key.activated`, `key.retired`, `key.revoked`, `key.deleted` | a signing key changed its state |
//! | `store.rollback_suspected` | a valid refresh token is newer than the store: old backup, or lost writes |

use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::{RequestId, TokenId};

/// The request that causes an event: its time, client, id and caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventContext {
    pub at: UnixTime,
    /// The address of the client. `None` for a command, and for a backend that acts for a user without naming the
    /// address.
    pub client: Option<IpAddr>,
    pub request: Option<RequestId>,
    /// The operator who made the call of the admin API.
    pub operator: Option<Arc<str>>,
    /// The subject of the token of the request. `None` on the admin listener, where tokens have no subject.
    pub caller: Option<String>,
    /// The provider or event stream that reported the event, by its name in the configuration.
    pub provider: Option<Arc<str>>,
    /// If true, the client of a session makes the call itself (RFC 7009), and not its user.
    pub is_by_client: bool,
    /// The new grant of the user that causes it.
    pub grant: Option<TokenId>,
}

impl EventContext {
    /// An IPv4 address from an IPv6 socket is recorded as IPv4.
    pub fn new(at: UnixTime, client: IpAddr, request: RequestId) -> Self {
        EventContext { client: Some(client.to_canonical()), request: Some(request), ..EventContext::from(at) }
    }

    /// The same, as a report of this provider.
    #[must_use]
    pub fn by_provider(self, name: &Arc<str>) -> Self {
        EventContext { provider: Some(name.clone()), ..self }
    }

    /// The same, as a call of the client of a session.
    #[must_use]
    pub fn by_client(self) -> Self {
        EventContext { is_by_client: true, ..self }
    }

    /// The same, as a consequence of this new grant.
    #[must_use]
    pub fn by_grant(self, id: TokenId) -> Self {
        EventContext { grant: Some(id), ..self }
    }
}

/// For callers that know only the time.
impl From<UnixTime> for EventContext {
    fn from(at: UnixTime) -> Self {
        EventContext {
            at,
            client: None,
            request: None,
            caller: None,
            operator: None,
            provider: None,
            is_by_client: false,
            grant: None,
        }
    }
}

/// What happened, and to which tokens. Fields that are `None` are omitted from the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Event {
    #[serde(rename = "event")]
    pub name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The subject of the tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The OAuth client that the tokens were issued for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Where the code of the client goes: the host of its redirect URI, or a private scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_host: Option<String>,
    /// The resources that the client asked for, or may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// Separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The generation that was created, or that the client presented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    /// The `sid` of a session at another issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Tokens issued at this time or earlier are revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Who ended the session of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
}

impl Event {
    pub fn new(name: &'static str) -> Self {
        Event { name, ..Event::default() }
    }

    pub fn for_family(name: &'static str, family: &Family) -> Self {
        Event {
            token_id: Some(family.id),
            subject: Some(family.subject.clone()),
            client_id: Some(family.client_id.clone()).filter(|client_id| !client_id.is_empty()),
            ..Event::new(name)
        }
    }

    /// With what the client may do.
    pub fn for_grant(name: &'static str, family: &Family) -> Self {
        Event {
            resource: family.audience.clone(),
            scope: Some(family.scope.clone()).filter(|scope| !scope.is_empty()),
            ..Event::for_family(name, family)
        }
    }

    /// One line of JSON, without the end of the line and without the sequence number, which [`Recorded::line`] adds.
    pub fn to_json(&self, context: &EventContext) -> String {
        #[derive(Serialize)]
        struct Json<'a> {
            time: String,
            #[serde(flatten)]
            event: &'a Event,
            #[serde(skip_serializing_if = "Option::is_none")]
            caller: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            operator: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            provider: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            grant: Option<TokenId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            client: Option<IpAddr>,
            #[serde(skip_serializing_if = "Option::is_none")]
            request_id: Option<RequestId>,
        }
        let json = Json {
            time: context.at.to_string(),
            event: self,
            // A caller that acts on its own tokens is named only once.
            caller: context.caller.as_deref().filter(|caller| self.subject.as_deref() != Some(caller)),
            operator: context.operator.as_deref(),
            provider: context.provider.as_deref(),
            grant: context.grant,
            client: context.client,
            request_id: context.request,
        };
        // Strings and numbers always have a JSON form.
        serde_json::to_string(&json).unwrap_or_default()
    }
}

/// The beginning of each line. It tells an incomplete line of the gateway from a line of another program.
pub const LINE_PREFIX: &str = "{\"seq\":";

/// An event that was not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The position of the event: 1, 2, 3, … in the order of commits. A gap means lost events: the outbox was full.
    pub sequence: u64,
    /// The JSON of [`Event::to_json`].
    pub event: String,
}

impl Recorded {
    /// The line that is delivered, without the end of the line.
    pub fn line(&self) -> String {
        format!("{LINE_PREFIX}{},{}", self.sequence, self.event.get(1..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_without_unknown_fields() {
        let event = Event {
            token_id: Some(TokenId::from_bytes([0; 16])),
            subject: Some("a\"\n".into()),
            generation: Some(2),
            ..Event::new("token.refreshed")
        };
        let mut context = EventContext::from(UnixTime::from_millis(1_700_000_000_042));
        context.client = Some("2001:db8::7".parse().expect("an address"));
        context.caller = Some("a\"\n".into());
        let recorded = Recorded { sequence: 7, event: event.to_json(&context) };
        let expected = r#"{"seq":7,"time":"2023-11-14T22:13:20.042Z","event":"token.refreshed","token_id":"0000000000000000000000","subject":"a\"\n","generation":2,"client":"2001:db8::7"}"#;
        assert_eq!(recorded.line(), expected);
        context.caller = Some("bob".into());
        assert!(event.to_json(&context).contains(r#""caller":"bob""#));
    }
}
