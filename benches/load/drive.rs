//! Drives one scenario's requests over many connections, and measures.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::client::{Connection, Target};
use crate::tls;

pub struct Load {
    pub target: Target,
    /// Sent in turn.
    pub requests: Arc<Vec<Vec<u8>>>,
    /// Each is sent once: the run ends with the last.
    pub once: bool,
    /// Any of these.
    pub expected_status: &'static [u16],
    pub connections: usize,
    /// Every request over a connection of its own; `Some(true)`: which resumes the session of the last.
    pub anew: Option<bool>,
    /// Every connection comes from an address of its own.
    pub from_everywhere: bool,
}

#[derive(Clone, Copy)]
pub enum Pace {
    /// Closed loop.
    AsFastAsItAnswers,
    /// Open loop, over all connections together.
    PerSecond(u64),
}

pub struct Measured {
    pub answered: u64,
    /// Handshakes of them that resumed a session.
    pub resumed: u64,
    pub elapsed: Duration,
    pub cpu: Duration,
    /// Nanoseconds. Of an open loop: from when each request was due to the last byte of its answer.
    pub latency: Histogram<u64>,
    /// Nanoseconds from when a request was due to when it was sent, where its connection was free: the generator's doing.
    pub lateness: Histogram<u64>,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    /// From when a request was due to the last byte of its answer.
    pub fn latency_micros(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn cpu_micros_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.answered.max(1) as f64
    }
}

/// What one connection saw.
struct Tally {
    answered: u64,
    resumed: u64,
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

/// Runs the load for `length` and charges the process `pid` for it. Fails on the first answer that is not the expected one: a
/// figure over wrong answers is no figure.
pub fn drive(load: &Load, pace: Pace, length: Duration, pid: u32) -> Outcome<Measured> {
    // All connections are open and all threads wait before the clock starts, so that neither is charged to requests.
    let opened: Vec<_> =
        (0..load.connections).map(|number| Connection::open(&load.target_of(number))).collect::<Outcome<_>>()?;
    let start = Instant::now() + Duration::from_millis(100);
    thread::scope(|scope| {
        let threads: Vec<_> = opened
            .into_iter()
            .enumerate()
            .map(|(number, connection)| {
                scope.spawn(move || one_connection(connection, load, number, pace, start, length))
            })
            .collect();
        thread::sleep(start.saturating_duration_since(Instant::now()));
        let cpu_before = cpu_time(pid)?;
        let mut sum = Tally::new()?;
        for thread in threads {
            sum.add(&thread.join().map_err(|_| "a thread of the load generator panicked")??)?;
        }
        let (elapsed, cpu) = (start.elapsed(), cpu_time(pid)?.saturating_sub(cpu_before));
        let Tally { answered, resumed, latency, lateness } = sum;
        Ok(Measured { answered, resumed, elapsed, cpu, latency, lateness })
    })
}

fn one_connection(
    mut connection: Connection,
    load: &Load,
    number: usize,
    pace: Pace,
    start: Instant,
    length: Duration,
) -> Outcome<Tally> {
    let mut tally = Tally::new()?;
    let end = start + length;
    // Connections take turns in the schedule and in the list of requests.
    for turn in (number..).step_by(load.connections) {
        let due = match pace {
            Pace::AsFastAsItAnswers => Instant::now().max(start),
            Pace::PerSecond(rate) => start + Duration::from_secs_f64(turn as f64 / rate as f64),
        };
        // A gateway that has fallen behind its whole schedule is not waited for.
        let is_late = due >= end || Instant::now() >= end + Duration::from_secs(1);
        if is_late || (load.once && turn >= load.requests.len()) {
            break;
        }
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
            tally.lateness.saturating_record(nanos(due.elapsed()));
        }
        if load.anew.is_some() {
            connection.close();
        }
        let response = connection.exchange(&load.requests[turn % load.requests.len()])?;
        if !load.expected_status.contains(&response.status) {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            return Err(format!("expected {:?}, got {}: {body}", load.expected_status, response.status).into());
        }
        tally.answered += 1;
        tally.latency.saturating_record(nanos(due.elapsed()));
    }
    tally.resumed = connection.resumed;
    Ok(tally)
}

impl Load {
    fn target_of(&self, connection: usize) -> Target {
        let mut target = self.target.clone();
        if self.anew == Some(true) {
            target.tls = target.tls.map(|config| tls::resuming(&config));
        }
        if self.from_everywhere {
            // All of 127.0.0.0/8 is this machine, on Linux.
            let [high, low] = u16::try_from(connection + 256).unwrap_or_default().to_be_bytes();
            target.from = Some(IpAddr::V4(Ipv4Addr::new(127, 1, high, low)));
        }
        target
    }
}

/// Up to a minute, to three digits.
pub fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

impl Tally {
    fn new() -> Outcome<Tally> {
        Ok(Tally { answered: 0, resumed: 0, latency: histogram()?, lateness: histogram()? })
    }

    fn add(&mut self, other: &Tally) -> Outcome<()> {
        self.answered += other.answered;
        self.resumed += other.resumed;
        self.latency.add(&other.latency)?;
        self.lateness.add(&other.lateness)?;
        Ok(())
    }
}

pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// User and system time of a process so far, all its threads together (proc(5): fields 14 and 15, in ticks of 1/100 s).
pub fn cpu_time(pid: u32) -> Outcome<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in field 2 may hold spaces and parentheses; what follows its last `)` starts at field 3.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<u64> =
        after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = ticks[..] else { return Err(format!("/proc/{pid}/stat is not as expected: {stat}").into()) };
    Ok(Duration::from_millis((user + system) * 10))
}

/// Asks the kernel to wake this process's threads at the time they asked for, and not up to 50 microseconds later. Where it
/// will not, the column "woke late" shows what the latencies owe to that.
pub fn sharpen_timers() {
    let _ = fs::write("/proc/self/timerslack_ns", "1");
}
