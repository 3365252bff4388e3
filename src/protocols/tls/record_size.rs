//! The size of TLS records.
//!
//! rustls copies each record into a buffer of its own, in TLS 1.3 from 5 bytes behind the buffer's start. With records
//! of 16 KiB, four pages, the parts of a body all begin at the same offset in a page. On AMD EPYC, a copy of 16 KiB by
//! `rep movsb`, which glibc uses, takes 4.6 to 7.9 µs instead of 0.16 if its target begins 2 to 10 bytes further in a
//! page than its source. So a body was either fast or slow as a whole. With a little less, each record begins at
//! another offset.

/// Plaintext of one record, in bytes: 16 KiB less two cache lines.
pub const RECORD_SIZE: usize = 16 * 1024 - 128;

/// How many bytes a connection encrypts before its socket has to accept them. rustls has 64 KiB, which would end in a
/// small fifth record.
pub const BUFFER_SIZE: usize = 4 * RECORD_SIZE;

/// The header of a record, which rustls counts too.
const HEADER: usize = 5;

/// For `max_fragment_size` of rustls.
pub(super) const MAX_FRAGMENT: Option<usize> = Some(RECORD_SIZE + HEADER);
