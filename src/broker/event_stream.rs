//! `[[event_stream]]`: security events of a transmitter (Shared Signals Framework 1.0), pushed or polled.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::report_counts::ReportOutcome;
use super::service::Broker;
use crate::auth::keyring::Source;
use crate::auth::renewals::Renewals;
use crate::auth::signed_jwt::SignatureCheck;
use crate::auth::token_cache::TokenCache;
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::jwt::signed::UnverifiedToken;
use crate::tokens::provider_events::security_event::{self, EventPolicy, SecurityEvent};
use crate::tokens::provider_events::{Effect, EffectSettings, EventError, EventErrorCode, NoEffect, stream_state};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Maximum size of a security event token in bytes. Most have one or two KiB, and reading one costs much more than its
/// size.
pub const MAX_EVENT: usize = 64 << 10;

/// A stream of security events, with the keys of its transmitter.
pub struct EventStream {
    /// `event_stream.name`
    pub name: Arc<str>,
    pub policy: EventPolicy,
    pub effects: EffectSettings,
    pub keys: Arc<Source>,
    /// That of the active gateway: it forgets logins that become due.
    pub token_cache: Arc<ArcSwap<TokenCache>>,
    /// Their streams have them read again.
    pub renewals: Arc<Renewals>,
}

/// Why an event was not accepted.
#[derive(Debug)]
pub enum EventRejected {
    /// It is the transmitter's fault. The same event would be rejected again.
    Invalid(EventError),
    /// The gateway cannot accept it now. The transmitter repeats it.
    Later(Reject),
}

impl From<EventError> for EventRejected {
    fn from(error: EventError) -> Self {
        EventRejected::Invalid(error)
    }
}

impl From<Reject> for EventRejected {
    fn from(reject: Reject) -> Self {
        EventRejected::Later(reject)
    }
}

impl Broker {
    /// Carries out a security event. When this returns `Ok`, its effect is durable, and enforced on every worker of
    /// this process. `jti`: the one that the transmitter named beside the token, if it did.
    pub async fn receive_event(
        &self,
        stream: &EventStream,
        token: &str,
        jti: Option<&str>,
        check: SignatureCheck<'_>,
        context: EventContext,
    ) -> Result<(), EventRejected> {
        let mut kind = "unknown";
        let received = self.receive(stream, token, jti, check, context, &mut kind).await;
        let outcome = match &received {
            Ok(outcome) => *outcome,
            Err(EventRejected::Invalid(_)) => ReportOutcome::Rejected,
            Err(EventRejected::Later(_)) => ReportOutcome::Failed,
        };
        self.reports.count(&stream.name, kind, outcome);
        if received.is_ok() {
            self.reports.heard_of(&stream.name, check.clock.uptime());
        }
        received.map(drop)
    }

    async fn receive(
        &self,
        stream: &EventStream,
        token: &str,
        jti: Option<&str>,
        check: SignatureCheck<'_>,
        context: EventContext,
        kind: &mut &'static str,
    ) -> Result<ReportOutcome, EventRejected> {
        if token.len() > MAX_EVENT {
            return Err(invalid(format!("{} bytes, maximum {MAX_EVENT}", token.len())).into());
        }
        let event = verify(stream, token, check, &context).await?;
        *kind = event.short_kind();
        if jti.is_some_and(|named| named != event.jti) {
            return Err(invalid("its jti is another one than that of its place in the response").into());
        }
        match event.effect(&stream.effects).map_err(invalid)? {
            Effect::Revoke(revoked) => self.carry_out(stream, token, &event, revoked, context).await,
            Effect::Refresh(of) => self.refresh_early(stream, of, context.at).await,
            Effect::Verified { state } => self.check_state(stream, state.as_deref(), context.at).map_err(Into::into),
            Effect::StreamUpdated(status) => Ok(report_update(stream, &status)),
            Effect::Nothing(why) => Ok(report(stream, &event, &why)),
        }
    }

    /// No mark: a repetition changes nothing. Other gateways read these logins again after half of
    /// `tokens.access_lifetime` at the latest.
    async fn refresh_early(
        &self,
        stream: &EventStream,
        of: Revoked,
        now: UnixTime,
    ) -> Result<ReportOutcome, EventRejected> {
        let due = self.with_timeout(self.store.make_logins_due(of, now)).await.map_err(Reject::from)?;
        stream.token_cache.load().forget_families(&due);
        stream.renewals.read_again(&due);
        tracing::info!(stream = &*stream.name, logins = due.len(), "logins are refreshed after a security event");
        Ok(ReportOutcome::Refreshed)
    }

    /// SSF section 8.1.4.1. A transmitter may verify a stream by itself, without a state.
    fn check_state(
        &self,
        stream: &EventStream,
        state: Option<&str>,
        now: UnixTime,
    ) -> Result<ReportOutcome, EventError> {
        let is_own = |state| stream_state::is_own(state, &stream.name, &self.roots, now, stream.policy.max_age);
        if !state.is_none_or(is_own) {
            let detail = "a verification with a state that this gateway did not choose";
            return Err(EventError::new(EventErrorCode::InvalidState, detail));
        }
        tracing::info!(stream = &*stream.name, "the transmitter verified the event stream");
        Ok(ReportOutcome::Verified)
    }

    async fn carry_out(
        &self,
        stream: &EventStream,
        token: &str,
        event: &SecurityEvent,
        revoked: Revoked,
        context: EventContext,
    ) -> Result<ReportOutcome, EventRejected> {
        let mark = Mark {
            kind: MarkKind::SecurityEvent,
            issuer: stream.policy.issuer.clone(),
            key: event.jti.clone(),
            value: secret::digest(&[token.as_bytes()]),
            until: event.until,
        };
        match self.revoke_reported(mark, vec![revoked], context.by_provider(&stream.name)).await? {
            Marked::First => Ok(ReportOutcome::Revoked),
            Marked::Repeated => Ok(ReportOutcome::Repeated),
            Marked::Taken => Err(invalid("another event had this jti").into()),
        }
    }
}

/// Claims come first, because they cost less than a signature.
async fn verify(
    stream: &EventStream,
    token: &str,
    check: SignatureCheck<'_>,
    context: &EventContext,
) -> Result<SecurityEvent, EventRejected> {
    let jwt = UnverifiedToken::parse(token).map_err(by_fault)?;
    let event = security_event::read(jwt.header(), jwt.claims(), &stream.policy, context.at)?;
    check.verify(&jwt, &stream.keys).await.map_err(by_fault)?;
    Ok(event)
}

/// RFC 8935 section 2.4 has a code for each of the transmitter's faults.
fn by_fault(reject: Reject) -> EventRejected {
    let code = match reject.reason {
        Reason::BadSignature => EventErrorCode::AuthenticationFailed,
        Reason::UnknownKey | Reason::AlgorithmNotAllowed => EventErrorCode::InvalidKey,
        reason if reason.is_invalid_token() => EventErrorCode::InvalidRequest,
        _ => return EventRejected::Later(reject),
    };
    EventError::new(code, format!("{}: {}", reject.reason.code(), reject.detail)).into()
}

fn invalid(detail: impl Into<String>) -> EventError {
    EventError::new(EventErrorCode::InvalidRequest, detail)
}

fn report_update(stream: &EventStream, status: &str) -> ReportOutcome {
    let stream = &*stream.name;
    if status == "enabled" {
        tracing::info!(stream, "the transmitter enabled the event stream");
        return ReportOutcome::Ignored;
    }
    let status = shown(status);
    tracing::error!(stream, status, "the transmitter stopped the event stream: sessions stay open here");
    ReportOutcome::Stopped
}

/// An event that does nothing.
fn report(stream: &EventStream, event: &SecurityEvent, why: &NoEffect) -> ReportOutcome {
    let stream = &*stream.name;
    let kind = event.short_kind();
    let jti = &*event.jti;
    match why {
        NoEffect::Unmapped(detail) => {
            tracing::warn!(stream, kind, jti, detail, "a security event names no session that the gateway knows");
            return ReportOutcome::Unmapped;
        }
        NoEffect::UnknownType => {
            tracing::info!(stream, kind = shown(&event.kind), jti, "a security event of an unknown type");
        }
        NoEffect::NotConcerned => tracing::info!(stream, kind, jti, "a security event that ends no session"),
    }
    ReportOutcome::Ignored
}

/// A transmitter's text, for the log.
pub(super) fn shown(text: &str) -> String {
    text.escape_debug().take(MAX_SHOWN).collect()
}

/// Maximum characters of a transmitter's text in the log.
const MAX_SHOWN: usize = 200;
