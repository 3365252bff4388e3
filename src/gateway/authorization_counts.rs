//! What came of the requests of clients that ask users: of authorization requests, consent pages, codes and
//! registrations, for the metrics.
//!
//! Each kind of call has one place that counts it, from its outcome: a rejected one by its reason. No label has a
//! client id.

use crate::telemetry::metrics::{Count, LabelledValue, by_outcome};
use crate::types::reject::Reason;

/// Shared by all workers. Outlives a reload.
pub struct AuthorizationCounts {
    /// In the order of [`AUTHORIZATIONS`], for each of [`Registration`].
    authorizations: [[Count; AUTHORIZATIONS.len()]; Registration::NAMES.len()],
    consents: [Count; CONSENTS.len()],
    codes: [Count; CODES.len()],
    registrations: [Count; REGISTRATIONS.len()],
}

/// How the gateway knows the client of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// It is an `[[oauth.client]]`.
    Operator,
    Document,
    /// It has registered itself.
    Itself,
    /// It is none of them, or the request names none.
    #[default]
    Unknown,
}

/// What came of a consent page that was not rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    Allowed,
    /// `oauth.client.consent = "never"`
    Skipped,
}

const AUTHORIZATIONS: [&str; 8] =
    ["asked", "unknown_client", "client_document", "redirect_mismatch", "invalid", "refused", "limited", "failed"];
const CONSENTS: [&str; 5] = ["allowed", "skipped", "denied", "rejected", "failed"];
const CODES: [&str; 7] = ["redeemed", "reused", "superseded", "expired", "session_ended", "wrong", "failed"];
const REGISTRATIONS: [&str; 4] = ["registered", "rejected", "limited", "failed"];

impl Registration {
    const NAMES: [&str; 4] = ["operator", "document", "itself", "unknown"];
}

impl AuthorizationCounts {
    /// `rejected`: `None` if the browser was sent to the consent page.
    pub fn count_authorization(&self, registration: Registration, rejected: Option<Reason>) {
        count(&self.authorizations[registration as usize], &AUTHORIZATIONS, authorization(rejected));
    }

    pub fn count_consent(&self, consent: Result<Consent, Reason>) {
        count(&self.consents, &CONSENTS, of_consent(consent));
    }

    /// `rejected`: `None` if the client has got tokens.
    pub fn count_code(&self, rejected: Option<Reason>) {
        count(&self.codes, &CODES, of_code(rejected));
    }

    pub fn count_registration(&self, rejected: Option<Reason>) {
        count(&self.registrations, &REGISTRATIONS, of_registration(rejected));
    }

    pub fn authorizations(&self) -> Vec<LabelledValue> {
        let of_one = |(registration, counts): (&&str, &[Count; AUTHORIZATIONS.len()])| {
            let with = |(mut labels, value): LabelledValue| {
                labels.push(("registration", (*registration).to_owned()));
                (labels, value)
            };
            by_outcome(&AUTHORIZATIONS, counts).into_iter().map(with).collect::<Vec<_>>()
        };
        Registration::NAMES.iter().zip(&self.authorizations).flat_map(of_one).collect()
    }

    pub fn consents(&self) -> Vec<LabelledValue> {
        by_outcome(&CONSENTS, &self.consents)
    }

    pub fn codes(&self) -> Vec<LabelledValue> {
        by_outcome(&CODES, &self.codes)
    }

    pub fn registrations(&self) -> Vec<LabelledValue> {
        by_outcome(&REGISTRATIONS, &self.registrations)
    }
}

impl Default for AuthorizationCounts {
    fn default() -> Self {
        AuthorizationCounts {
            authorizations: [const { [const { Count::new() }; AUTHORIZATIONS.len()] }; Registration::NAMES.len()],
            consents: [const { Count::new() }; CONSENTS.len()],
            codes: [const { Count::new() }; CODES.len()],
            registrations: [const { Count::new() }; REGISTRATIONS.len()],
        }
    }
}

fn count(counts: &[Count], names: &[&str], name: &str) {
    let counted = names.iter().position(|known| *known == name).and_then(|place| counts.get(place));
    if let Some(counted) = counted {
        counted.add_shared(1);
    }
}

/// Of a rejection that has no name of its own: a limit, a failure of the gateway or of a server, or the request.
fn other(reason: Reason, of_request: &'static str) -> &'static str {
    match reason {
        Reason::AddressLimited | Reason::FailuresLimited => "limited",
        _ if reason.status().is_server_error() => "failed",
        _ => of_request,
    }
}

fn authorization(rejected: Option<Reason>) -> &'static str {
    match rejected {
        None => "asked",
        Some(Reason::UnknownClient) => "unknown_client",
        Some(Reason::ClientDocument) => "client_document",
        Some(Reason::RedirectMismatch) => "redirect_mismatch",
        Some(Reason::AuthorizationRefused) => "refused",
        Some(reason) => other(reason, "invalid"),
    }
}

fn of_consent(consent: Result<Consent, Reason>) -> &'static str {
    match consent {
        Ok(Consent::Allowed) => "allowed",
        Ok(Consent::Skipped) => "skipped",
        Err(Reason::ConsentDenied) => "denied",
        Err(reason) if reason.status().is_server_error() => "failed",
        Err(_) => "rejected",
    }
}

fn of_code(rejected: Option<Reason>) -> &'static str {
    match rejected {
        None => "redeemed",
        Some(Reason::CodeReused) => "reused",
        Some(Reason::CodeSuperseded) => "superseded",
        Some(Reason::CodeExpired) => "expired",
        Some(Reason::CodeSessionEnded) => "session_ended",
        Some(reason) if reason.status().is_server_error() => "failed",
        Some(_) => "wrong",
    }
}

fn of_registration(rejected: Option<Reason>) -> &'static str {
    rejected.map_or("registered", |reason| other(reason, "rejected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: Vec<LabelledValue>) -> f64 {
        values.into_iter().map(|(_, value)| value).sum()
    }

    #[test]
    fn every_reason_is_counted_once() {
        for reason in Reason::ALL.iter().copied() {
            let counts = AuthorizationCounts::default();
            counts.count_authorization(Registration::Document, Some(reason));
            counts.count_consent(Err(reason));
            counts.count_code(Some(reason));
            counts.count_registration(Some(reason));
            let sums = [counts.authorizations(), counts.consents(), counts.codes(), counts.registrations()].map(sum);
            assert_eq!(sums, [1.0; 4], "{reason:?}");
        }
    }

    #[test]
    fn what_succeeds_is_counted_under_its_name() {
        let counts = AuthorizationCounts::default();
        counts.count_authorization(Registration::Itself, None);
        counts.count_consent(Ok(Consent::Allowed));
        counts.count_consent(Ok(Consent::Skipped));
        counts.count_code(None);
        counts.count_registration(None);
        let name = |values: Vec<LabelledValue>| {
            let counted = values.into_iter().filter(|(_, value)| *value > 0.0);
            counted
                .map(|(labels, _)| labels.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(name(counts.authorizations()), [["asked", "itself"]]);
        assert_eq!(name(counts.consents()), [["allowed"], ["skipped"]]);
        assert_eq!(name(counts.codes()), [["redeemed"]]);
        assert_eq!(name(counts.registrations()), [["registered"]]);
    }
}
