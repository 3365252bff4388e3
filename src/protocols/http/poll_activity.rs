//! Reports from the gateway's future and its bodies to the executor of an HTTP/2 request: what did one poll of the task
//! wait for?
//!
//! hyper drives each HTTP/2 request in one task. It polls the gateway's future, then the response body, and in between
//! it waits for the client to widen its window. The gateway's own waits have limits of their own. The executor limits
//! the waits for the client, so it must tell them apart.
//!
//! The reports are a task-local of tokio. The executor opens a scope around each poll, and a report outside of a scope,
//! as over HTTP/1.1, does nothing. hyper builds the task's future and gives it to the executor without any access to
//! the gateway's future inside, so no handle can be passed to both explicitly. One that is shared with the service
//! would rely on the order of hyper's calls, and cost every request an allocation and every body a field.

use std::cell::Cell;
use std::task::Poll;

tokio::task_local! {
    static CURRENT: PollActivity;
}

/// What was reported during the current poll.
#[derive(Default)]
struct PollActivity {
    is_gateway_pending: Cell<bool>,
    bytes: Cell<usize>,
}

/// What was reported during one poll.
pub struct PollReport {
    /// Whether the gateway's future or a body has to wait, for a backend for example.
    pub is_gateway_pending: bool,
    /// Bytes of the body that hyper took. It takes one frame ahead of the room that the client makes.
    pub bytes: usize,
}

/// Polls a request's task within a scope of its own.
pub fn scope<T>(poll: impl FnOnce() -> Poll<T>) -> (Poll<T>, PollReport) {
    CURRENT.sync_scope(PollActivity::default(), || {
        let polled = poll();
        let report = CURRENT.with(|current| PollReport {
            is_gateway_pending: current.is_gateway_pending.get(),
            bytes: current.bytes.get(),
        });
        (polled, report)
    })
}

/// Returns true inside [`scope`].
pub fn is_in_scope() -> bool {
    CURRENT.try_with(|_| ()).is_ok()
}

/// Reports that the gateway has to wait, if `polled` is pending. Returns `polled`.
pub fn report_pending<T>(polled: Poll<T>) -> Poll<T> {
    if polled.is_pending() {
        // Fails outside of a scope, where there is no one to report to.
        let _ = CURRENT.try_with(|current| current.is_gateway_pending.set(true));
    }
    polled
}

/// Reports that hyper took this many bytes of a body.
pub fn report_bytes(bytes: usize) {
    let _ = CURRENT.try_with(|current| current.bytes.set(current.bytes.get() + bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_sees_its_own_reports_only() {
        report_bytes(1);
        assert!(report_pending(Poll::<()>::Pending).is_pending() && !is_in_scope());
        let (polled, report) = scope(|| {
            assert!(is_in_scope());
            report_bytes(2);
            report_bytes(3);
            report_pending(Poll::Ready(()))
        });
        assert!(polled.is_ready() && !report.is_gateway_pending && report.bytes == 5);
        let (_, report) = scope(|| report_pending(Poll::<()>::Pending));
        assert!(report.is_gateway_pending && report.bytes == 0);
    }
}
