//! What a security event does here. An event that cannot be mapped to tokens does nothing: it is counted and logged.

use serde_json::Value;

use super::claims::optional_id;
use super::security_event::SecurityEvent;
use super::subject_id::SubjectId;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::jwt::json::quoted;

/// What a stream may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectSettings {
    /// `event_stream.subject_issuers`: the issuers of the users and sessions that the transmitter may report.
    pub subject_issuers: Vec<String>,
    /// `event_stream.stream_id`
    pub stream_id: Option<String>,
    /// `event_stream.credential_change`
    pub credential_change: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Revoke(Revoked),
    /// The transmitter shows that the stream works.
    Verified {
        state: Option<String>,
    },
    /// `stream-updated`, with the new status.
    StreamUpdated(String),
    Nothing(NoEffect),
}

/// Why an event does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEffect {
    UnknownType,
    /// It ends no session, for example a new credential.
    NotConcerned,
    /// The gateway cannot tell which tokens it is about.
    Unmapped(String),
}

const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/";
const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

impl SecurityEvent {
    /// A short name of a known type, for metrics: what a transmitter sends must not become a label.
    pub fn short_kind(&self) -> &'static str {
        const KNOWN: &[(&str, &[&str])] = &[
            (
                CAEP,
                &[
                    "session-revoked",
                    "session-established",
                    "session-presented",
                    "credential-change",
                    "token-claims-change",
                    "assurance-level-change",
                    "device-compliance-change",
                    "risk-level-change",
                ],
            ),
            (
                RISC,
                &[
                    "account-disabled",
                    "account-enabled",
                    "account-purged",
                    "account-credential-change-required",
                    "credential-compromise",
                    "sessions-revoked",
                    "identifier-changed",
                    "identifier-recycled",
                ],
            ),
            (SSF, &["verification", "stream-updated"]),
        ];
        let known = KNOWN.iter().find_map(|(prefix, names)| {
            let name = self.kind.strip_prefix(prefix)?;
            names.iter().find(|known| **known == name)
        });
        known.copied().unwrap_or("other")
    }

    /// What the event does. The error is that of a malformed event, for the log.
    pub fn effect(&self, settings: &EffectSettings) -> Result<Effect, String> {
        Ok(match self.short_kind() {
            "session-revoked" => self.revoke(settings, true),
            "sessions-revoked" => self.revoke(settings, false),
            "credential-change" if self.ends_logins()? => match settings.credential_change {
                true => self.revoke(settings, false),
                false => Effect::Nothing(NoEffect::NotConcerned),
            },
            "account-disabled" | "account-purged" | "account-credential-change-required" | "credential-compromise" => {
                self.revoke(settings, false)
            }
            "verification" => self.verification(settings),
            "stream-updated" => {
                let status = self.members.get("status").and_then(Value::as_str);
                Effect::StreamUpdated(status.ok_or("status is missing or not a string")?.to_owned())
            }
            "other" => Effect::Nothing(NoEffect::UnknownType),
            _ => Effect::Nothing(NoEffect::NotConcerned),
        })
    }

    /// Returns true for a change of a credential that a thief may have used: it was taken away, or is a new password.
    fn ends_logins(&self) -> Result<bool, String> {
        let text = |name| optional_id(&self.members, name);
        let change = text("change_type")?.ok_or("change_type is missing")?;
        let credential = text("credential_type")?;
        Ok(match &*change {
            "revoke" | "delete" => true,
            "update" => matches!(credential.as_deref(), Some("password" | "pin")),
            _ => false,
        })
    }

    /// `names_session`: the event may be about one session.
    fn revoke(&self, settings: &EffectSettings, names_session: bool) -> Effect {
        let revoked = match &self.subject {
            None => Err("the event has no sub_id".to_owned()),
            Some(subject) => revoked(subject, self, settings, names_session),
        };
        revoked.map_or_else(|why| Effect::Nothing(NoEffect::Unmapped(why)), Effect::Revoke)
    }

    /// SSF section 8.1.4.1: the subject is the stream itself.
    fn verification(&self, settings: &EffectSettings) -> Effect {
        let is_other = match (&self.subject, &settings.stream_id) {
            (Some(SubjectId::Opaque(stream)), Some(ours)) => stream != ours,
            _ => false,
        };
        if is_other {
            return Effect::Nothing(NoEffect::Unmapped("the verification of another stream".into()));
        }
        let state = self.members.get("state").and_then(Value::as_str);
        Effect::Verified { state: state.map(str::to_owned) }
    }
}

fn revoked(
    subject: &SubjectId,
    event: &SecurityEvent,
    settings: &EffectSettings,
    names_session: bool,
) -> Result<Revoked, String> {
    let allowed = |issuer: &str| match settings.subject_issuers.iter().any(|allowed| allowed == issuer) {
        true => Ok(issuer.to_owned()),
        false => Err(format!("the issuer {} is not one of event_stream.subject_issuers", quoted(Some(issuer)))),
    };
    let user = |user: &SubjectId| match user {
        SubjectId::User { issuer, subject } => {
            let (issuer, subject) = (allowed(issuer)?, subject.clone());
            Ok(Revoked::Subject { issuer, subject, not_after: event.time })
        }
        other => Err(format!("the user is named by {}", shown(other))),
    };
    // Without a user, only one issuer can be meant.
    let session_issuer = |user: Option<&SubjectId>| match (user, &*settings.subject_issuers) {
        (Some(SubjectId::User { issuer, .. }), _) => allowed(issuer),
        (_, [only]) => Ok(only.clone()),
        _ => Err("the session has no issuer, and event_stream.subject_issuers has several".to_owned()),
    };
    let session = |id: &SubjectId, user: Option<&SubjectId>| match id {
        SubjectId::Opaque(session) => Ok(Revoked::Session { issuer: session_issuer(user)?, session: session.clone() }),
        other => Err(format!("the session is named by {}", shown(other))),
    };
    match subject {
        SubjectId::Complex { user, session: Some(id), .. } if names_session => session(id, user.as_deref()),
        SubjectId::Opaque(_) if names_session => session(subject, None),
        // All members hold together: a user on one device, or of one application, is less than the user.
        SubjectId::Complex { user: Some(id), session: None, others }
            if others.iter().all(|name| name == "\"tenant\"") =>
        {
            user(id)
        }
        SubjectId::User { .. } => user(subject),
        other => Err(format!("the subject is {}", shown(other))),
    }
}

/// The form of a subject, for the log: it can hold an e-mail address.
fn shown(subject: &SubjectId) -> String {
    match subject {
        SubjectId::User { .. } => "iss_sub".into(),
        SubjectId::Opaque(_) => "opaque".into(),
        SubjectId::Complex { others, .. } => format!("complex, with {}", others.join(", ")),
        SubjectId::Other(format) => quoted(Some(format)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tokens::provider_events::subject_id;
    use crate::types::clock::UnixTime;

    const ISSUER: &str = "https://login.example";
    const TIME: UnixTime = UnixTime::from_secs(1_000);

    fn settings() -> EffectSettings {
        EffectSettings {
            subject_issuers: vec![ISSUER.into()],
            stream_id: Some("stream-1".into()),
            credential_change: true,
        }
    }

    fn event(kind: &str, subject: &Value, members: &Value) -> SecurityEvent {
        SecurityEvent {
            jti: "j".into(),
            kind: kind.into(),
            subject: (!subject.is_null()).then(|| subject_id::read(subject).expect("a subject")),
            members: members.as_object().expect("an object").clone(),
            time: TIME,
            until: TIME,
        }
    }

    fn alice() -> Value {
        json!({ "format": "iss_sub", "iss": ISSUER, "sub": "alice" })
    }

    fn opaque(id: &str) -> Value {
        json!({ "format": "opaque", "id": id })
    }

    fn of_alice() -> Effect {
        Effect::Revoke(Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: TIME })
    }

    fn of_session() -> Effect {
        Effect::Revoke(Revoked::Session { issuer: ISSUER.into(), session: "s1".into() })
    }

    fn is_unmapped(effect: &Effect) -> bool {
        matches!(effect, Effect::Nothing(NoEffect::Unmapped(_)))
    }

    #[test]
    fn a_revoked_session_ends_alone_if_it_is_named() {
        let of = |subject: &Value| {
            event(&format!("{CAEP}session-revoked"), subject, &json!({})).effect(&settings()).expect("an effect")
        };
        assert_eq!(of(&alice()), of_alice());
        assert_eq!(of(&opaque("s1")), of_session());
        let complex = |members: Value| {
            let mut members = members;
            members["format"] = "complex".into();
            members
        };
        assert_eq!(of(&complex(json!({ "user": alice(), "session": opaque("s1") }))), of_session());
        assert_eq!(of(&complex(json!({ "session": opaque("s1"), "device": opaque("d") }))), of_session());
        assert_eq!(of(&complex(json!({ "user": alice() }))), of_alice());
        assert_eq!(of(&complex(json!({ "user": alice(), "tenant": opaque("t") }))), of_alice());
        for unmapped in [
            Value::Null,
            complex(json!({ "user": alice(), "device": opaque("d") })),
            complex(json!({ "device": opaque("d") })),
            complex(json!({ "user": opaque("u") })),
            complex(json!({ "user": alice(), "session": alice() })),
            complex(json!({ "user": json!({ "format": "iss_sub", "iss": "https://other.example", "sub": "a" }),
                "session": opaque("s1") })),
            json!({ "format": "email", "email": "alice@login.example" }),
            json!({ "format": "iss_sub", "iss": "https://other.example", "sub": "alice" }),
        ] {
            assert!(is_unmapped(&of(&unmapped)), "{unmapped}");
        }
    }

    #[test]
    fn a_session_needs_an_issuer() {
        let event = event(&format!("{CAEP}session-revoked"), &opaque("s1"), &json!({}));
        let several = vec![ISSUER.to_owned(), "https://other.example".to_owned()];
        let effect = event.effect(&EffectSettings { subject_issuers: several, ..settings() }).expect("an effect");
        assert!(is_unmapped(&effect), "{effect:?}");
    }

    #[test]
    fn each_type_has_its_effect() {
        let nothing = || Effect::Nothing(NoEffect::NotConcerned);
        for (kind, members, expected) in [
            (format!("{RISC}account-disabled"), json!({}), of_alice()),
            (format!("{RISC}account-purged"), json!({}), of_alice()),
            (format!("{RISC}account-credential-change-required"), json!({}), of_alice()),
            (format!("{RISC}credential-compromise"), json!({ "credential_type": "password" }), of_alice()),
            (format!("{RISC}sessions-revoked"), json!({}), of_alice()),
            (format!("{RISC}account-enabled"), json!({}), nothing()),
            (format!("{RISC}identifier-changed"), json!({}), nothing()),
            (format!("{CAEP}token-claims-change"), json!({}), nothing()),
            (format!("{CAEP}account-disabled"), json!({}), Effect::Nothing(NoEffect::UnknownType)),
            ("https://other.example/session-revoked".into(), json!({}), Effect::Nothing(NoEffect::UnknownType)),
            (format!("{SSF}stream-updated"), json!({ "status": "paused" }), Effect::StreamUpdated("paused".into())),
        ] {
            let effect = event(&kind, &alice(), &members).effect(&settings());
            assert_eq!(effect, Ok(expected), "{kind}");
        }
        assert!(event(&format!("{SSF}stream-updated"), &alice(), &json!({})).effect(&settings()).is_err());
    }

    #[test]
    fn a_changed_credential_ends_logins_by_its_kind() {
        for (members, ends) in [
            (json!({ "change_type": "revoke", "credential_type": "fido2-platform" }), true),
            (json!({ "change_type": "delete", "credential_type": "x509" }), true),
            (json!({ "change_type": "update", "credential_type": "password" }), true),
            (json!({ "change_type": "update", "credential_type": "pin" }), true),
            (json!({ "change_type": "update", "credential_type": "phone-voice" }), false),
            (json!({ "change_type": "create", "credential_type": "password" }), false),
        ] {
            let event = event(&format!("{CAEP}credential-change"), &alice(), &members);
            let nothing = Effect::Nothing(NoEffect::NotConcerned);
            let expected = if ends { of_alice() } else { nothing.clone() };
            assert_eq!(event.effect(&settings()), Ok(expected), "{members}");
            let off = EffectSettings { credential_change: false, ..settings() };
            assert_eq!(event.effect(&off), Ok(nothing), "{members}");
        }
        assert!(event(&format!("{CAEP}credential-change"), &alice(), &json!({})).effect(&settings()).is_err());
    }

    #[test]
    fn a_verification_is_of_this_stream() {
        let of = |subject: &Value, members: &Value| {
            event(&format!("{SSF}verification"), subject, members).effect(&settings()).expect("an effect")
        };
        let verified = |state: Option<&str>| Effect::Verified { state: state.map(str::to_owned) };
        assert_eq!(of(&opaque("stream-1"), &json!({ "state": "x" })), verified(Some("x")));
        assert_eq!(of(&opaque("stream-1"), &json!({})), verified(None));
        assert!(is_unmapped(&of(&opaque("stream-2"), &json!({}))));
    }
}
