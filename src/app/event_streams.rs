//! `[[event_stream]]`: tasks for the keys of each transmitter, for polls and for verifications. They end with the
//! gateway.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::AbortHandle;

use crate::auth::keyring::{KeyUser, Source, watch};
use crate::auth::renewals::Renewals;
use crate::auth::token_cache::TokenCache;
use crate::broker::{
    Broker, EventPoll, EventStream, EventVerification, ReportCounts, ReportOutcome, poll_events, verify_stream,
};
use crate::config::{self, EventDelivery};
use crate::gateway::provider_events::PushReceiver;
use crate::telemetry::metrics::{LabelledValue, Metrics};
use crate::types::clock::{Clock, Uptime};

/// The streams of a running gateway. A change of `[[event_stream]]` requires a restart.
pub(super) struct EventStreams {
    /// Of each stream with a path, in the order of the configuration.
    pub(super) receivers: Vec<Arc<PushReceiver>>,
    polls: Vec<EventPoll>,
    verifications: Vec<EventVerification>,
    sources: Vec<Arc<Source>>,
}

impl EventStreams {
    /// `token_cache`: that of the active gateway.
    pub(super) fn new(
        settings: &[config::EventStream],
        token_cache: &Arc<ArcSwap<TokenCache>>,
        renewals: &Arc<Renewals>,
    ) -> Self {
        let mut streams =
            EventStreams { receivers: Vec::new(), polls: Vec::new(), verifications: Vec::new(), sources: Vec::new() };
        for settings in settings {
            streams.add(settings, token_cache.clone(), renewals.clone());
        }
        streams
    }

    fn add(&mut self, settings: &config::EventStream, token_cache: Arc<ArcSwap<TokenCache>>, renewals: Arc<Renewals>) {
        let transmitter = settings.transmitter.clone();
        let keys = Arc::new(Source::new(transmitter.policy, transmitter.keys));
        self.sources.push(keys.clone());
        let stream = Arc::new(EventStream {
            name: settings.name.clone(),
            policy: settings.policy.clone(),
            effects: settings.effects.clone(),
            keys,
            token_cache,
            renewals,
        });
        let verification = settings.verification.as_ref().zip(settings.delivery.credentials());
        self.verifications.extend(verification.map(|(verification, credentials)| {
            let stream = stream.clone();
            let credentials = credentials.clone();
            let config::EventVerification { url, ca_file, interval, stream_id } = verification.clone();
            EventVerification { stream, url, ca_file, credentials, stream_id, interval }
        }));
        match settings.delivery.clone() {
            EventDelivery::Push { authorization, .. } => {
                self.receivers.push(Arc::new(PushReceiver::new(stream, authorization.as_bytes())));
            }
            EventDelivery::Poll { url, ca_file, interval, credentials } => {
                self.polls.push(EventPoll { stream, url, ca_file, credentials, interval });
            }
        }
    }

    pub(super) fn register_metrics(&self, broker: &Arc<Broker>, clock: &Arc<dyn Clock>, metrics: &mut Metrics) {
        self.register(&broker.reports, clock.uptime());
        let reports = broker.clone();
        let help = "Reports of identity providers by provider or event stream, kind and outcome";
        metrics.counters("provider_reports", help, move || reports.reports.by_outcome());
        let gauge = |read: fn(&ReportCounts, Uptime) -> Vec<LabelledValue>| {
            let broker = broker.clone();
            let clock = clock.clone();
            move || read(&broker.reports, clock.uptime())
        };
        let help = "Seconds since each event stream was last heard of";
        metrics.gauges("event_stream_silence_seconds", help, gauge(ReportCounts::silences));
        let help = "1 if an event stream is silent for longer than its polls or verifications allow";
        metrics.gauges("event_stream_overdue", help, gauge(ReportCounts::overdue));
    }

    /// Shows the streams in the metrics. A stream that is pushed and not verified can be silent for ever.
    fn register(&self, counts: &ReportCounts, now: Uptime) {
        let pushed = self.receivers.iter().map(|receiver| (&receiver.stream, None));
        let verified = self.verifications.iter().map(|of| (&of.stream, Some(of.longest_silence())));
        let polled = self.polls.iter().map(|poll| (&poll.stream, Some(poll.longest_silence())));
        // A polled stream has a sign of life with each response.
        for (stream, longest_silence) in pushed.chain(verified).chain(polled) {
            counts.expect(&stream.name, "session-revoked", ReportOutcome::Revoked);
            counts.expect(&stream.name, "stream-updated", ReportOutcome::Stopped);
            counts.watch(&stream.name, longest_silence, now);
        }
    }

    /// Starts the tasks on the current runtime. `file_poll`: that of the configuration.
    pub(super) fn start(&self, broker: &Arc<Broker>, clock: &Arc<dyn Clock>, file_poll: Duration) -> StreamTasks {
        let user: Arc<dyn KeyUser> = Arc::new(Transmitters);
        let watched = |source: &Arc<Source>| watch(source.clone(), user.clone(), clock.clone(), file_poll);
        let keys = self.sources.iter().map(|source| tokio::spawn(watched(source)));
        let polls =
            self.polls.iter().map(|poll| tokio::spawn(poll_events(poll.clone(), broker.clone(), clock.clone())));
        let verifications =
            self.verifications.iter().map(|of| tokio::spawn(verify_stream(of.clone(), broker.clone(), clock.clone())));
        StreamTasks(keys.chain(polls).chain(verifications).map(|task| task.abort_handle()).collect())
    }
}

/// The keys of transmitters are in no keyring: they verify no Bearer token. Each stream reads those of its source.
struct Transmitters;

impl KeyUser for Transmitters {
    fn sources(&self) -> Vec<Arc<Source>> {
        Vec::new()
    }

    fn replace_sources(&self, _: Vec<Arc<Source>>) {}

    fn publish(&self) {}
}

/// Ends the tasks when dropped.
pub(super) struct StreamTasks(Vec<AbortHandle>);

impl Drop for StreamTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}
