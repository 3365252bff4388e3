//! Sends the requests of one scenario over many connections and measures.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::client::{Connection, Response, Target};
use crate::tls;

pub struct Load {
    pub target: Target,
    /// Sent one after another, again from the start after the last.
    pub requests: Arc<Vec<Vec<u8>>>,
    /// If true, each request is sent once, and the run ends with the last.
    pub once: bool,
    /// A response with any other status ends the bench.
    pub expected_status: &'static [u16],
    pub connections: usize,
    pub reconnect: Reconnect,
    /// If true, each connection has its own source address.
    pub address_per_connection: bool,
}

#[derive(Clone, Copy)]
pub enum Pace {
    /// Each connection sends its next request when it has received a response.
    ClosedLoop,
    /// Requests per second, over all connections together.
    OpenLoop(u64),
}

/// Whether each request opens a new connection.
#[derive(Clone, Copy, PartialEq)]
pub enum Reconnect {
    Never,
    /// With a full TLS handshake.
    Full,
    /// With a TLS handshake that resumes the last session.
    Resumed,
}

pub struct Measured {
    pub responses: u64,
    /// Number of TLS handshakes that resumed a session.
    pub resumed: u64,
    pub elapsed: Duration,
    pub cpu: Duration,
    /// Nanoseconds to the last byte of the response. In the open loop they count from the time the request was due.
    pub latency: Histogram<u64>,
    /// Nanoseconds from the time a request was due to the time it was sent, if its connection was free. This is the
    /// delay that the load generator itself adds.
    pub lateness: Histogram<u64>,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.responses as f64 / self.elapsed.as_secs_f64()
    }

    /// See [`Measured::latency`].
    pub fn latency_micros(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn cpu_micros_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.responses.max(1) as f64
    }
}

/// The results of one connection.
struct Tally {
    responses: u64,
    resumed: u64,
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

/// Runs the load for `length` and measures the CPU time of the process `pid`. Fails on the first unexpected response,
/// because figures that include errors mean nothing.
pub fn drive(load: &Load, pace: Pace, length: Duration, pid: u32) -> Outcome<Measured> {
    // All connections are open and all threads run before the clock starts, so that requests do not pay for either.
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
        let Tally { responses, resumed, latency, lateness } = sum;
        Ok(Measured { responses, resumed, elapsed, cpu, latency, lateness })
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
    // Connection k sends the requests k, k + connections, k + 2 connections, and so on.
    for turn in (number..).step_by(load.connections) {
        let due = match pace {
            Pace::ClosedLoop => Instant::now().max(start),
            Pace::OpenLoop(rate) => start + Duration::from_secs_f64(turn as f64 / rate as f64),
        };
        // A run that is more than a second behind its schedule ends.
        let is_late = due >= end || Instant::now() >= end + Duration::from_secs(1);
        if is_late || (load.once && turn >= load.requests.len()) {
            break;
        }
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
            tally.lateness.saturating_record(nanos(due.elapsed()));
        }
        let response = load.exchange(&mut connection, turn)?;
        if !load.expected_status.contains(&response.status) {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            return Err(format!("expected {:?}, got {}: {body}", load.expected_status, response.status).into());
        }
        tally.responses += 1;
        tally.latency.saturating_record(nanos(due.elapsed()));
    }
    tally.resumed = connection.resumed;
    Ok(tally)
}

impl Load {
    /// Sends the request of this turn, on a new connection if the load reconnects.
    pub fn exchange(&self, connection: &mut Connection, turn: usize) -> Outcome<Response> {
        if self.reconnect != Reconnect::Never {
            connection.close();
        }
        connection.exchange(&self.requests[turn % self.requests.len()])
    }

    /// What this connection connects to, with an address and sessions of its own.
    pub fn target_of(&self, connection: usize) -> Target {
        let mut target = self.target.clone();
        if self.reconnect == Reconnect::Resumed {
            target.tls = target.tls.map(|config| tls::resuming(&config));
        }
        if self.address_per_connection {
            // On Linux, all of 127.0.0.0/8 belongs to this machine.
            let [high, low] = u16::try_from(connection + 256).unwrap_or_default().to_be_bytes();
            target.from = Some(IpAddr::V4(Ipv4Addr::new(127, 1, high, low)));
        }
        target
    }
}

/// A histogram of nanoseconds, up to one minute, with three significant digits.
pub fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

impl Tally {
    fn new() -> Outcome<Tally> {
        Ok(Tally { responses: 0, resumed: 0, latency: histogram()?, lateness: histogram()? })
    }

    fn add(&mut self, other: &Tally) -> Outcome<()> {
        self.responses += other.responses;
        self.resumed += other.resumed;
        self.latency.add(&other.latency)?;
        self.lateness.add(&other.lateness)?;
        Ok(())
    }
}

pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// User and system time that all threads of a process have used (proc(5): fields 14 and 15, in ticks of 1/100 s).
pub fn cpu_time(pid: u32) -> Outcome<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in field 2 may contain spaces and parentheses. Field 3 follows its last `)`.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<u64> =
        after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = ticks[..] else { return Err(format!("cannot parse /proc/{pid}/stat: {stat}").into()) };
    Ok(Duration::from_millis((user + system) * 10))
}

/// Sets the kernel's timer slack to 1 ns. The default of 50 us would add that much to latencies. Failure is ignored:
/// the column "woke late" shows the effect.
pub fn sharpen_timers() {
    let _ = fs::write("/proc/self/timerslack_ns", "1");
}
