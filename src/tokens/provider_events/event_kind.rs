//! The types of events that the gateway knows.

use super::security_event::SecurityEvent;

pub(super) const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
pub(super) const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/";
pub(super) const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

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
                    "opt-in",
                    "opt-out-initiated",
                    "opt-out-cancelled",
                    "opt-out-effective",
                    "recovery-activated",
                    "recovery-information-changed",
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
}
