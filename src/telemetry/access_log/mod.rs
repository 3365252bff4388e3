//! One line a request, also when the client leaves, written to the disk off the hot path.
//!
//! A worker fills in a [`Record`] and writes it as a line on a page of its own; a thread collects the pages. A request
//! pays for its line, half a microsecond, and an uncontended lock, never for a system call. To hand the record itself
//! over would cost more in all: it is four times as large as its line, out of the cache when the other thread looks at
//! it, and what it owns would be freed by another thread than made it. If the writer cannot keep up (a full disk, a
//! stalled terminal) lines are dropped and counted, not waited for.
//!
//! The query is not logged: it is where other people's secrets are. Nor is any header but User-Agent.

mod line;
mod record;
mod settings;
mod writer;

pub use record::Record;
pub use settings::{Format, Settings, Target};
pub use writer::{AccessLog, Buffer};
