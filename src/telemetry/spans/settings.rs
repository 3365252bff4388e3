//! `[trace]`

use super::sampler::Ratio;
use crate::telemetry::post::Receiver;

#[derive(Clone, Debug, PartialEq)]
pub struct SpanSettings {
    /// `trace.endpoint`: the collector.
    pub receiver: Receiver,
    /// `trace.sample`: the part of new traces that is sampled.
    pub sample: Ratio,
    /// `trace.errors`: if true, requests that fail are exported although they are not sampled.
    pub errors: bool,
    /// `trace.per_second`: Maximum number of requests per second with spans that are exported; 0: no limit.
    pub per_second: u32,
    /// `trace.queue_size`: Maximum bytes of spans that wait for the collector.
    pub queue_size: usize,
}
