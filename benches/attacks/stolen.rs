//! Time in which the host ran somebody else on a processor of this machine: what was felt then says nothing about the gateway.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::machine::Machine;

/// A tick of stolen time is 10 ms, and is counted when it is full: it may have begun somewhat earlier.
const EVERY: Duration = Duration::from_millis(20);

/// Looks out for it until it is asked.
pub struct Lookout {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Stolen>>,
}

/// When it was.
#[derive(Default)]
pub struct Stolen(Vec<(Instant, Instant)>);

impl Lookout {
    pub fn begin() -> Lookout {
        let is_over = Arc::<AtomicBool>::default();
        let until = is_over.clone();
        Lookout { is_over, thread: thread::spawn(move || look_out(&until)) }
    }

    pub fn end(self) -> io::Result<Stolen> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the lookout panicked")))
    }
}

fn look_out(is_over: &AtomicBool) -> io::Result<Stolen> {
    let mut stolen = Stolen::default();
    let mut before = Machine::now()?;
    // Once more after the end, for what is counted late.
    loop {
        let was_over = is_over.load(Ordering::Relaxed);
        thread::sleep(EVERY);
        let now = Machine::now()?;
        if now.stolen > before.stolen {
            stolen.0.push((before.at - EVERY, now.at));
        }
        before = now;
        if was_over {
            return Ok(stolen);
        }
    }
}

impl Stolen {
    /// Was any of it in this time?
    pub fn touches(&self, from: Instant, to: Instant) -> bool {
        self.0.iter().any(|(begun, ended)| *begun < to && from < *ended)
    }
}
