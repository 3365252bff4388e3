//! Two workers beside one: what a request costs when they share what they share, and whether they wait for each other.
//!
//! Both run on all cores of this machine, which the load generator and the origin use as well: how many more requests two
//! workers answer says as much about those as about the gateway. What a request costs, and where the workers stand, does not.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::side_by_side::REVOCATIONS;
use super::{Line, median};
use crate::Outcome;
use crate::bench::{Answers, Bench};
use crate::drive::{Measured, Pace};
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Of the looks at a worker, at most this share finds it waiting for a lock, in percent.
const GOAL: f64 = 1.0;

/// Between two looks at where the workers stand. No divisor of the kernel's ticks.
const LOOK: Duration = Duration::from_micros(1_700);

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let scenario = Scenario::called("es256-10k")?;
    let all = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let setup = Setup { cpus: Some(all.trim()), revocations: REVOCATIONS, ..bench.gateway() };
    let gateways = [Gateway::start(&Setup { workers: 1, ..setup })?, Gateway::start(&Setup { workers: 2, ..setup })?];
    let mut runs: [Vec<Measured>; 2] = Default::default();
    let mut locked = Vec::new();
    for _ in 0..bench.flags.rounds {
        for (gateway, runs) in gateways.iter().zip(&mut runs) {
            let who = Answers::gateway(gateway, scenario);
            bench.warm_up(scenario, who)?;
            let over = AtomicBool::new(false);
            let (measured, looks) = thread::scope(|scope| {
                let looking = scope.spawn(|| look(gateway.pid(), &over));
                let measured = bench.run(scenario, who, Pace::AsFastAsItAnswers, bench.flags.length());
                over.store(true, Ordering::Relaxed);
                let looks = looking.join().map_err(|_| "a look panicked")?;
                Outcome::Ok((measured?, looks))
            })?;
            runs.push(measured);
            locked.extend((gateway.pid() == gateways[1].pid()).then(|| looks.map(|looks| looks.locked_percent())));
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
struct Looks {
    all: u64,
    locked: u64,
}

impl Looks {
    fn locked_percent(&self) -> f64 {
        100.0 * self.locked as f64 / self.all.max(1) as f64
    }
}

/// The system call by which a thread waits for another.
#[cfg(target_arch = "x86_64")]
const FUTEX: &str = "202";
#[cfg(not(target_arch = "x86_64"))]
const FUTEX: &str = "98";

/// Looks again and again at what the workers are in. A worker waits for sockets in epoll_wait and for a lock in futex, and for
/// nothing else; one that spins is not seen (`perf` shows it).
fn look(pid: u32, over: &AtomicBool) -> Outcome<Looks> {
    let mut looks = Looks::default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.flatten().map(|task| task.path());
    let is_worker = |task: &Path| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-"));
    let workers: Vec<_> = tasks.filter(|task| is_worker(task)).map(|task| task.join("syscall")).collect();
    while !over.load(Ordering::Relaxed) {
        for worker in &workers {
            // "running", or the number of the system call that it waits in.
            let stands = fs::read_to_string(worker).map_err(|error| format!("{}: {error}", worker.display()))?;
            looks.all += 1;
            looks.locked += u64::from(stands.split(' ').next() == Some(FUTEX));
        }
        thread::sleep(LOOK);
    }
    Ok(looks)
}
