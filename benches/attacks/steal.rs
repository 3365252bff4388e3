//! Intervals in which the host ran another virtual machine on a processor of this one. Latencies in them say nothing
//! about the gateway.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::machine::Machine;

/// How often stolen time is read. The kernel counts a tick of 10 ms when it is full, so the stolen time may have
/// started up to one interval earlier.
const INTERVAL: Duration = Duration::from_millis(20);

/// Records stolen time in a thread until it is stopped.
pub struct StealMonitor {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<StealIntervals>>,
}

/// Start and end of each interval.
#[derive(Default)]
pub struct StealIntervals(Vec<(Instant, Instant)>);

impl StealMonitor {
    pub fn start() -> StealMonitor {
        let stopped = Arc::<AtomicBool>::default();
        let flag = stopped.clone();
        StealMonitor { stopped, thread: thread::spawn(move || monitor(&flag)) }
    }

    pub fn stop(self) -> io::Result<StealIntervals> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the steal monitor panicked")))
    }
}

fn monitor(stopped: &AtomicBool) -> io::Result<StealIntervals> {
    let mut stolen = StealIntervals::default();
    let mut before = Machine::now()?;
    // Reads once more after the stop, because the kernel counts late.
    loop {
        let was_stopped = stopped.load(Ordering::Relaxed);
        thread::sleep(INTERVAL);
        let now = Machine::now()?;
        if now.stolen > before.stolen {
            stolen.0.push((before.at - INTERVAL, now.at));
        }
        before = now;
        if was_stopped {
            return Ok(stolen);
        }
    }
}

impl StealIntervals {
    /// Returns true if processor time was stolen between `from` and `to`.
    pub fn overlaps(&self, from: Instant, to: Instant) -> bool {
        self.0.iter().any(|(begun, ended)| *begun < to && from < *ended)
    }
}
