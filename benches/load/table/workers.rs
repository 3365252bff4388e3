//! One worker compared with two: the CPU time of a request, and whether workers wait for each other.
//!
//! Both gateways run on all cores, which the load generator and the origin use as well. The number of requests per
//! second therefore depends on those too. The CPU time of a request and the state of the workers do not.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::line::{Line, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::drive::{Measured, Pace};
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum percentage of samples in which a worker waits for a lock.
const GOAL: f64 = 1.0;

/// Time between two samples of the workers' state. It does not divide the kernel's tick.
const SAMPLE_INTERVAL: Duration = Duration::from_micros(1_700);

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let scenario = Scenario::by_name("es256-10k")?;
    let all = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let setup = Setup { cpus: Some(all.trim()), revocations: REVOCATIONS, ..bench.gateway() };
    let gateways = [Gateway::start(&Setup { workers: 1, ..setup })?, Gateway::start(&Setup { workers: 2, ..setup })?];
    let mut runs: [Vec<Measured>; 2] = Default::default();
    let mut locked = Vec::new();
    for _ in 0..bench.flags.rounds {
        for (gateway, runs) in gateways.iter().zip(&mut runs) {
            let process = UnderTest::gateway(gateway, scenario);
            bench.warm_up(scenario, process)?;
            let done = AtomicBool::new(false);
            let (measured, samples) = thread::scope(|scope| {
                let sampling = scope.spawn(|| sample(gateway.pid(), &done));
                let measured = bench.run(scenario, process, Pace::ClosedLoop, bench.flags.length());
                done.store(true, Ordering::Relaxed);
                let samples = sampling.join().map_err(|_| "the sampling thread panicked")?;
                Outcome::Ok((measured?, samples))
            })?;
            runs.push(measured);
            locked
                .extend((gateway.pid() == gateways[1].pid()).then(|| samples.map(|samples| samples.locked_percent())));
        }
    }
    let [one, two] = &runs;
    let costs = |runs: &[Measured]| runs.iter().map(Measured::cpu_micros_per_request).collect::<Vec<_>>();
    let rates = |runs: &[Measured]| runs.iter().map(Measured::per_second).collect::<Vec<_>>();
    let line = |name: &str, unit, figures| Line::alone(name, unit, figures, kinds.len());
    let more = median(&costs(two)) / median(&costs(one));
    let rate = median(&rates(two)) / median(&rates(one));
    let mut lines = vec![
        line("1 worker, es256, 10,000 tokens", "CPU us/req", costs(one)),
        Line { ratio: Some(more), ..line("2 workers, the same", "CPU us/req", costs(two)) },
        line("1 worker, load on the same cores", "req/s", rates(one)),
        Line { ratio: Some(rate), ..line("2 workers, load on the same cores", "req/s", rates(two)) },
    ];
    let name = "2 workers, looks that find one waiting for a lock";
    lines.push(match locked.into_iter().collect::<Outcome<Vec<f64>>>() {
        Ok(locked) => {
            let worst = locked.iter().copied().fold(0.0, f64::max);
            let goal = format!("no round above {GOAL} %");
            Line { goal, is_met: Some(worst <= GOAL), ..line(name, "%", locked) }
        }
        Err(error) => Line { figures: vec![Err(error.to_string())], ..line(name, "%", vec![]) }.widened(kinds.len()),
    });
    Ok(lines)
}

impl Line {
    fn widened(mut self, peers: usize) -> Line {
        self.figures.extend((0..peers).map(|_| Err(String::new())));
        self
    }
}

#[derive(Default)]
struct Samples {
    all: u64,
    locked: u64,
}

impl Samples {
    fn locked_percent(&self) -> f64 {
        100.0 * self.locked as f64 / self.all.max(1) as f64
    }
}

/// The number of the system call `futex`, in which a thread waits for a lock.
#[cfg(target_arch = "x86_64")]
const FUTEX: &str = "202";
#[cfg(not(target_arch = "x86_64"))]
const FUTEX: &str = "98";

/// Samples the system call that each worker is in. A worker waits for sockets in epoll_wait and for a lock in futex.
/// This does not detect a spinning worker (`perf` does).
fn sample(pid: u32, done: &AtomicBool) -> Outcome<Samples> {
    let mut samples = Samples::default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.flatten().map(|task| task.path());
    let is_worker = |task: &Path| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-"));
    let workers: Vec<_> = tasks.filter(|task| is_worker(task)).map(|task| task.join("syscall")).collect();
    while !done.load(Ordering::Relaxed) {
        for worker in &workers {
            // "running", or the number of the system call that the worker waits in.
            let state = fs::read_to_string(worker).map_err(|error| format!("{}: {error}", worker.display()))?;
            samples.all += 1;
            samples.locked += u64::from(state.split(' ').next() == Some(FUTEX));
        }
        thread::sleep(SAMPLE_INTERVAL);
    }
    Ok(samples)
}
