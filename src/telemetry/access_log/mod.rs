//! The access log: one line for each request, also if the client disconnects. It never blocks a request.
//!
//! A worker fills in a [`Record`] and writes it as a line into its own [`Buffer`]; a thread writes the buffers to the
//! disk. A request pays for its line, about half a microsecond, and for an uncontended lock, but never for a system
//! call. Handing the record itself to the thread would cost more: it is four times as large as its line, and the thread
//! would read it with a cold cache and free memory of another thread. If the thread cannot keep up (a full disk, a
//! stalled terminal), lines are dropped and counted.
//!
//! The query and all headers but User-Agent are not logged, because they can hold secrets. A client cannot fill the
//! disk with a few bytes: every text is cut (`field`), and requests that need no token and reach no backend have a
//! limit (`rejections`).

mod attempts;
mod combined;
mod field;
mod json;
mod line;
mod oauth;
mod record;
mod redact;
mod rejections;
mod settings;
mod sink;
mod text;
mod timestamp;
mod writer;

pub use attempts::{Attempts, FailedAttempt, UpstreamNames};
pub(in crate::telemetry) use field::{cut, is_cut_from};
pub use oauth::OAuthRequest;
pub use record::{Broken, Record};
pub(in crate::telemetry) use redact::without_tokens;
pub use settings::{AccessLogSettings, AccessLogTarget, Format};
pub use writer::{AccessLog, Buffer};
