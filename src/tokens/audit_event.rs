//! What is recorded about tokens, so that it can be told later who did what, when and from where.
//!
//! An [`Event`] is written by the store, in the transaction that it tells of: what was undone was never recorded, and what
//! was done always is. `delivery` takes it from there to its readers. Nothing in an event is a token or a secret.
//!
//! | event | when |
//! |---|---|
//! | `token.issued` | a login was made |
//! | `token.refreshed` | a refresh made a new generation |
//! | `refresh.replayed`, `refresh.recovered` | a refresh got the pair again that it was given before: within the grace, after it |
//! | `refresh.conflict` | a laggard was sent away within the grace |
//! | `refresh.reuse_detected` | a spent refresh token came back, and its login was ended |
//! | `refresh.binding_mismatch` | bearer and refresh token were of different logins |
//! | `refresh.denied` | any other refresh token that was not good: `reason` as in the access log |
//! | `token.revoked` | a login was ended: `reason` says whether by its owner, an operator, or the limit of logins |
//! | `access_token.revoked`, `subject.revoked`, `issuer.revoked`, `everything.revoked` | by an operator, up to `before` |
//! | `key.created`, `key.activated`, `key.retired`, `key.revoked`, `key.deleted` | the life of a signing key |
//! | `store.rollback_suspected` | a genuine refresh token was newer than the store: a backup was restored, or the disk lies |

use std::net::IpAddr;

use serde::Serialize;

use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::{RequestId, TokenId};

/// When something is asked for, from where, by whom and by which request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventContext {
    pub at: UnixTime,
    /// `None` if nobody's address says anything: a command, a backend that speaks for a user and does not say where from.
    pub client: Option<IpAddr>,
    pub request: Option<RequestId>,
    /// The subject of the token that was shown. `None` on the admin listener, which knows no subjects.
    pub caller: Option<String>,
}

impl EventContext {
    /// An IPv4 address that came over an IPv6 socket is written as what it is.
    pub fn new(at: UnixTime, client: IpAddr, request: RequestId) -> Self {
        EventContext { at, client: Some(client.to_canonical()), request: Some(request), caller: None }
    }
}

/// Nothing but the time is known.
impl From<UnixTime> for EventContext {
    fn from(at: UnixTime) -> Self {
        EventContext { at, client: None, request: None, caller: None }
    }
}

/// What happened, and to which tokens. What does not apply is `None`, and left out of the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Event {
    #[serde(rename = "event")]
    pub name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Whose tokens they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The one that was made, or the one that was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    /// What was issued at this time or earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

impl Event {
    pub fn new(name: &'static str) -> Self {
        Event { name, ..Event::default() }
    }

    pub fn of(name: &'static str, family: &Family) -> Self {
        Event { token_id: Some(family.id), subject: Some(family.subject.clone()), ..Event::new(name) }
    }

    /// A line of JSON without its end. It lacks its place in the record, which the store gives it: see [`Recorded::line`].
    pub fn written(&self, occasion: &EventContext) -> String {
        #[derive(Serialize)]
        struct Written<'a> {
            time: String,
            #[serde(flatten)]
            event: &'a Event,
            #[serde(skip_serializing_if = "Option::is_none")]
            caller: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            client: Option<IpAddr>,
            #[serde(skip_serializing_if = "Option::is_none")]
            request_id: Option<RequestId>,
        }
        let written = Written {
            time: occasion.at.to_string(),
            event: self,
            // Whoever asks for their own is named once.
            caller: occasion.caller.as_deref().filter(|caller| self.subject.as_deref() != Some(caller)),
            client: occasion.client,
            request_id: occasion.request,
        };
        // Strings and numbers are always expressible in JSON.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

/// How each line begins, so that a torn one can be told from what somebody else wrote.
pub const BEGINNING: &str = "{\"seq\":";

/// An event that waits for its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its place in the record: 1, 2, 3, … in the order of commits. A gap stands for events that were lost, as too many
    /// were waiting.
    pub sequence: u64,
    /// As [`Event::written`] made it.
    pub event: String,
}

impl Recorded {
    /// As readers get it, without a line's end.
    pub fn line(&self) -> String {
        format!("{BEGINNING}{},{}", self.sequence, self.event.get(1..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_with_what_is_known() {
        let event = Event {
            token_id: Some(TokenId::from_bytes([0; 16])),
            subject: Some("a\"\n".into()),
            generation: Some(2),
            ..Event::new("token.refreshed")
        };
        let mut occasion = EventContext::from(UnixTime::from_millis(1_700_000_000_042));
        occasion.client = Some("2001:db8::7".parse().expect("an address"));
        occasion.caller = Some("a\"\n".into());
        let recorded = Recorded { sequence: 7, event: event.written(&occasion) };
        let expected = r#"{"seq":7,"time":"2023-11-14T22:13:20.042Z","event":"token.refreshed","token_id":"0000000000000000000000","subject":"a\"\n","generation":2,"client":"2001:db8::7"}"#;
        assert_eq!(recorded.line(), expected);
        occasion.caller = Some("bob".into());
        assert!(event.written(&occasion).contains(r#""caller":"bob""#));
    }
}
