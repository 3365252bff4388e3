//! The effect of a security event. One that cannot be mapped to tokens does nothing: it is counted and logged.

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
    /// What the provider says of a user has changed: its logins are refreshed there before their time.
    Refresh(Revoked),
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

impl SecurityEvent {
    /// What the event does. The error is that of a malformed event, for the log.
    pub fn effect(&self, settings: &EffectSettings) -> Result<Effect, String> {
        Ok(match self.short_kind() {
            "session-revoked" => self.revoke(settings, true),
            "sessions-revoked" => self.revoke(settings, false),
            "credential-change" if self.ends_logins()? => {
                if settings.credential_change {
                    self.revoke(settings, false)
                } else {
                    Effect::Nothing(NoEffect::NotConcerned)
                }
            }
            "account-disabled" | "account-purged" | "account-credential-change-required" | "credential-compromise" => {
                self.revoke(settings, false)
            }
            "token-claims-change" | "assurance-level-change" | "risk-level-change" => self.refresh(settings),
            "device-compliance-change" if self.is_compliant() => Effect::Nothing(NoEffect::NotConcerned),
            "device-compliance-change" => self.refresh(settings),
            "verification" | "stream-updated" if !self.is_of_stream(settings) => {
                Effect::Nothing(NoEffect::Unmapped("an event about another stream".into()))
            }
            "verification" => {
                let state = self.members.get("state").map(|state| state.as_str().unwrap_or_default());
                Effect::Verified { state: state.map(str::to_owned) }
            }
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
        let about = if names_session { About::SessionOrUser } else { About::User };
        self.mapped(settings, about).map_or_else(unmapped, Effect::Revoke)
    }

    fn refresh(&self, settings: &EffectSettings) -> Effect {
        self.mapped(settings, About::AnyOf).map_or_else(unmapped, Effect::Refresh)
    }

    fn mapped(&self, settings: &EffectSettings, about: About) -> Result<Revoked, String> {
        let subject = self.subject.as_ref().ok_or("the event has no sub_id")?;
        revoked(subject, self, settings, about)
    }

    fn is_compliant(&self) -> bool {
        self.members.get("current_status").and_then(Value::as_str) == Some("compliant")
    }

    /// SSF sections 8.1.4.1 and 8.1.5: the subject is the stream itself.
    fn is_of_stream(&self, settings: &EffectSettings) -> bool {
        match (&self.subject, &settings.stream_id) {
            (Some(SubjectId::Opaque(stream)), Some(ours)) => stream == ours,
            (_, ours) => ours.is_none(),
        }
    }
}

/// What an event can be about.
#[derive(Clone, Copy, PartialEq)]
enum About {
    User,
    SessionOrUser,
    /// As before. It does no harm if it reaches more sessions of the user than are meant, for example those on all
    /// devices.
    AnyOf,
}

fn unmapped(why: String) -> Effect {
    Effect::Nothing(NoEffect::Unmapped(why))
}

fn revoked(
    subject: &SubjectId,
    event: &SecurityEvent,
    settings: &EffectSettings,
    about: About,
) -> Result<Revoked, String> {
    let names_session = about != About::User;
    let allowed = |issuer: &str| {
        if settings.subject_issuers.iter().any(|allowed| allowed == issuer) {
            Ok(issuer.to_owned())
        } else {
            Err(format!("the issuer {} is not one of event_stream.subject_issuers", quoted(Some(issuer))))
        }
    };
    let user = |user: &SubjectId| match user {
        SubjectId::User { issuer, subject } => {
            let issuer = allowed(issuer)?;
            let subject = subject.clone();
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
            if about == About::AnyOf || others.iter().all(|name| name == "\"tenant\"") =>
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
    use crate::tokens::provider_events::event_kind::{CAEP, RISC, SSF};
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

    fn refresh_of_alice() -> Effect {
        Effect::Refresh(Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: TIME })
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
            (format!("{RISC}recovery-activated"), json!({}), nothing()),
            (format!("{CAEP}session-established"), json!({}), nothing()),
            (format!("{CAEP}token-claims-change"), json!({ "claims": { "role": "x" } }), refresh_of_alice()),
            (format!("{CAEP}assurance-level-change"), json!({ "current_level": "nist-aal1" }), refresh_of_alice()),
            (format!("{CAEP}risk-level-change"), json!({ "current_level": "HIGH" }), refresh_of_alice()),
            (format!("{CAEP}device-compliance-change"), json!({}), refresh_of_alice()),
            (format!("{CAEP}device-compliance-change"), json!({ "current_status": "compliant" }), nothing()),
            (format!("{CAEP}account-disabled"), json!({}), Effect::Nothing(NoEffect::UnknownType)),
            ("https://other.example/session-revoked".into(), json!({}), Effect::Nothing(NoEffect::UnknownType)),
        ] {
            let effect = event(&kind, &alice(), &members).effect(&settings());
            assert_eq!(effect, Ok(expected), "{kind}");
        }
    }

    #[test]
    fn a_change_on_one_device_refreshes_all_logins_of_the_user() {
        let of = |kind: &str, mut subject: Value| {
            subject["format"] = "complex".into();
            event(&format!("{CAEP}{kind}"), &subject, &json!({})).effect(&settings()).expect("an effect")
        };
        let on_a_device = || json!({ "user": alice(), "device": opaque("d") });
        assert_eq!(of("device-compliance-change", on_a_device()), refresh_of_alice());
        let session = Revoked::Session { issuer: ISSUER.into(), session: "s1".into() };
        assert_eq!(of("token-claims-change", json!({ "session": opaque("s1") })), Effect::Refresh(session));
        assert!(is_unmapped(&of("device-compliance-change", json!({ "device": opaque("d") }))));
        assert!(is_unmapped(&of("session-revoked", on_a_device())), "it would end too much");
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
        assert_eq!(of(&opaque("stream-1"), &json!({ "state": 7 })), verified(Some("")), "it is not a known one");
        for other in [opaque("stream-2"), alice(), Value::Null] {
            assert!(is_unmapped(&of(&other, &json!({}))), "{other}");
        }
        let updated = |subject: &Value, members: &Value| {
            event(&format!("{SSF}stream-updated"), subject, members).effect(&settings())
        };
        let paused = json!({ "status": "paused" });
        assert_eq!(updated(&opaque("stream-1"), &paused), Ok(Effect::StreamUpdated("paused".into())));
        assert!(updated(&opaque("stream-2"), &paused).is_ok_and(|effect| is_unmapped(&effect)));
        assert!(updated(&opaque("stream-1"), &json!({})).is_err());
        let without_id = EffectSettings { stream_id: None, ..settings() };
        let any = event(&format!("{SSF}stream-updated"), &opaque("stream-2"), &paused).effect(&without_id);
        assert_eq!(any, Ok(Effect::StreamUpdated("paused".into())));
    }
}
