//! Work that no client can cancel: what a provider responds is in no other place, also if the client has left.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub struct Detached {
    /// That of the control thread, which ends after the workers.
    runtime: Handle,
    running: watch::Sender<usize>,
}

/// Counts one work until it ends, in whatever way.
struct Running(watch::Sender<usize>);

impl Detached {
    /// On the runtime of the caller.
    pub fn here() -> Self {
        Detached { runtime: Handle::current(), running: watch::Sender::new(0) }
    }

    /// Begins work that a stop waits for.
    pub fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.running.send_modify(|running| *running += 1);
        let running = Running(self.running.clone());
        self.runtime.spawn(async move {
            let _running = running;
            work.await;
        });
    }

    /// Begins work that a stop cuts off.
    pub fn begin_in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Waits for the work that runs, but not longer than `limit`.
    pub async fn finish(&self, limit: Duration) {
        let mut running = self.running.subscribe();
        let finished = tokio::time::timeout(limit, running.wait_for(|running| *running == 0)).await;
        if finished.is_err() {
            tracing::warn!("a provider does not respond to a sign-in, which is cut off");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_work_that_runs() {
        let detached = Detached::here();
        detached.finish(Duration::ZERO).await;
        let (end, ended) = oneshot::channel::<()>();
        detached.begin(async move { drop(ended.await) });
        detached.begin_in_background(std::future::pending());
        assert_eq!(*detached.running.borrow(), 1);
        end.send(()).expect("it waits");
        detached.finish(Duration::from_secs(60)).await;
        assert_eq!(*detached.running.borrow(), 0);
        // Work that panics has ended as well.
        detached.begin(async { panic!("on purpose") });
        detached.finish(Duration::from_secs(60)).await;
        assert_eq!(*detached.running.borrow(), 0);
    }
}
