//! `[[event_stream]]`: one task for the keys of each transmitter, and one that polls. They end with the gateway.

use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::auth::keyring::{KeyUser, Source, watch};
use crate::broker::{Broker, EventPoll, EventStream, ReportCounts, poll_events};
use crate::config::{self, EventDelivery};
use crate::gateway::provider_events::PushReceiver;
use crate::types::clock::{Clock, Uptime};

/// The streams of a running gateway. A change of `[[event_stream]]` requires a restart.
pub(super) struct EventStreams {
    /// Of each stream with a path, in the order of the configuration.
    pub(super) receivers: Vec<Arc<PushReceiver>>,
    polls: Vec<EventPoll>,
    sources: Vec<Arc<Source>>,
}

impl EventStreams {
    pub(super) fn new(settings: &[config::EventStream]) -> Self {
        let mut streams = EventStreams { receivers: Vec::new(), polls: Vec::new(), sources: Vec::new() };
        for settings in settings {
            streams.add(settings);
        }
        streams
    }

    fn add(&mut self, settings: &config::EventStream) {
        let transmitter = settings.transmitter.clone();
        let keys = Arc::new(Source::new(transmitter.policy, transmitter.keys));
        self.sources.push(keys.clone());
        let stream = Arc::new(EventStream {
            name: settings.name.clone(),
            policy: settings.policy.clone(),
            effects: settings.effects.clone(),
            keys,
        });
        let authorization = &settings.authorization;
        match settings.delivery.clone() {
            EventDelivery::Push(_) => {
                self.receivers.push(Arc::new(PushReceiver::new(stream, authorization.as_bytes())));
            }
            EventDelivery::Poll { url, ca_file, interval } => {
                self.polls.push(EventPoll { stream, url, ca_file, authorization: authorization.clone(), interval });
            }
        }
    }

    /// Shows the streams in the metrics. The silence of a stream counts from now.
    pub(super) fn register(&self, counts: &ReportCounts, now: Uptime) {
        let pushed = self.receivers.iter().map(|receiver| &receiver.stream);
        for stream in pushed.chain(self.polls.iter().map(|poll| &poll.stream)) {
            counts.expect(&stream.name, "session-revoked");
            counts.heard_of(&stream.name, now);
        }
    }

    /// Starts the tasks on the current runtime.
    pub(super) fn start(&self, broker: &Arc<Broker>, clock: &Arc<dyn Clock>) -> StreamTasks {
        let user: Arc<dyn KeyUser> = Arc::new(Transmitters);
        let keys = self.sources.iter().map(|source| tokio::spawn(watch(source.clone(), user.clone(), clock.clone())));
        let polls =
            self.polls.iter().map(|poll| tokio::spawn(poll_events(poll.clone(), broker.clone(), clock.clone())));
        StreamTasks(keys.chain(polls).map(|task| task.abort_handle()).collect())
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
