//! Traces: the spans of sampled requests, sent to a collector by OTLP over HTTP (`[trace]`).
//!
//! A request that is not sampled costs a trace id and one header. The spans of a sampled one are made from its record
//! after the last byte of the response, encoded by the worker into a bounded queue, and sent by a thread of their own.
//! There is no SDK: a library that keeps each span as an object costs more than the gateway itself.

mod batch;
mod export;
mod ids;
mod partial_success;
mod queue;
mod request_spans;
mod sampler;
mod settings;
mod tracer;

pub use export::Exporter;
pub use queue::{Drops, Queue};
pub use sampler::Ratio;
pub use settings::SpanSettings;
pub use tracer::{Tracer, WorkerTracer};
