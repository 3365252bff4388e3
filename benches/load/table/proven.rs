//! The cost of a DPoP proof: requests with a bound token and a new proof each, compared with requests to a public route
//! and a bare check of an ES256 signature for each.
//!
//! Both sides have the same rate. A closed loop would compare plain requests, for which no core has to be woken, with
//! requests that wait for one. The checks are timed beside plain requests, on the cores of the gateway: a loop of
//! checks alone has the caches for itself, and a gateway shares them with the kernel and with its requests.

use std::cell::RefCell;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::alternating::in_turns;
use super::line::{Line, is_at_most, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::drive::Pace;
use crate::gateway::{Gateway, Setup};
use crate::keys::Check;
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum ratio to a request without a token check and one signature check.
const GOAL: f64 = 1.05;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() })?;
    let check = bench.keys.check()?;
    let alone = one_after_another(&check, 2_000)?;
    let [plain, proven] = [Scenario::by_name("plain")?, Scenario::by_name("dpop")?];
    let cost = |scenario: &'static Scenario, length| {
        let process = UnderTest::gateway(&gateway, scenario);
        let measured = bench.run(scenario, process, Pace::OpenLoop(bench.flags.rate), length)?;
        Outcome::Ok(measured.cpu_micros_per_request())
    };
    for scenario in [plain, proven] {
        bench.warm_up(scenario, UnderTest::gateway(&gateway, scenario))?;
    }
    let checks = RefCell::new(Vec::new());
    let [sums, proven] = in_turns(bench, |side, length| match side {
        0 => {
            let request = cost(plain, length)?;
            let check = beside(bench, &check, || cost(plain, length))?;
            checks.borrow_mut().push(check);
            Ok(request + check)
        }
        _ => cost(proven, length),
    })?;
    let checks = checks.into_inner();
    let ratio = |check: &dyn Fn(f64) -> f64| {
        let sums = sums.iter().zip(&checks).map(|(sum, beside)| sum - beside + check(*beside));
        median(&proven.iter().zip(sums).map(|(proven, sum)| proven / sum).collect::<Vec<_>>())
    };
    let (with_alone, with_beside) = (ratio(&|_| median(&alone)), ratio(&|beside| beside));
    let line = |name, unit, figures| Line::alone(name, unit, figures, kinds.len());
    let proof = |name, ratio, goal: &str| {
        line(name, "CPU us/req", proven.clone()).goal(ratio, format!("{GOAL:.2} x {goal}"), is_at_most(ratio, GOAL))
    };
    let of_alone = proof("dpop, at --rate, in turns with plain", with_alone, "plain + check alone");
    let of_beside = proof("the same", with_beside, "plain + check beside");
    Ok(vec![
        line("one ES256 check, alone", "CPU us", alone),
        line("one ES256 check beside plain requests, at --rate", "CPU us", checks),
        line("plain and this check, at --rate", "CPU us/req", sums),
        of_alone,
        of_beside,
    ])
}

/// Median of the microseconds of `count` checks, one after another.
fn one_after_another(check: &Check, count: usize) -> Outcome<Vec<f64>> {
    let times: Vec<f64> = (0..count).map(|_| check.time().map(micros)).collect::<Outcome<_>>()?;
    Ok(vec![median(&times)])
}

/// Runs `requests` and meanwhile checks a signature at `--rate`, on the cores of the gateway. Returns the median of the
/// microseconds of a check. Few checks include a request that interrupts them, so the median does not.
fn beside(bench: &Bench<'_>, check: &Check, requests: impl FnOnce() -> Outcome<f64>) -> Outcome<f64> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let checks = scope.spawn(|| {
            pin(bench.flags.gateway_cpus.as_deref())?;
            let (began, mut times) = (Instant::now(), Vec::new());
            while !ended.load(Ordering::Relaxed) {
                let due = began + Duration::from_secs_f64(times.len() as f64 / bench.flags.rate as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                times.push(micros(check.time()?));
            }
            Outcome::Ok(median(&times))
        });
        let outcome = requests();
        ended.store(true, Ordering::Relaxed);
        let check = checks.join().map_err(|_| "the thread of the checks panicked")??;
        outcome.map(|_| check)
    })
}

/// Runs the calling thread on these cores.
fn pin(cpus: Option<&str>) -> Outcome<()> {
    let Some(list) = cpus else { return Ok(()) };
    let thread = fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().ok_or("/proc/thread-self names no thread")?;
    let pinned = Command::new("taskset").args(["--cpu-list", "--pid", list]).arg(id).output()?;
    if pinned.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&pinned.stderr).into()) }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
