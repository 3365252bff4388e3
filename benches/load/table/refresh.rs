//! `POST /user/refresh` over sockets with 64 clients, compared with bare fsyncs and with a single client. The gateway
//! responds after the refresh is durable.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::line::{Line, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::Bench;
use crate::client::{Connection, Target};
use crate::gateway::{Gateway, Setup, TokenPair};
use crate::peers::Kind;

const CLIENTS: usize = 64;

/// Minimum refreshes per second; or, on a slow disk, the minimum ratio to bare fsyncs per second.
const GOAL: (f64, f64) = (3_000.0, 25.0);

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    // The limit per session is off: no real client refreshes this often.
    let gateway = Gateway::start(&Setup { throttled: false, revocations: REVOCATIONS, ..bench.gateway() })?;
    let target = gateway.target(false);
    let mut logins = gateway.log_in(CLIENTS + 1)?;
    let mut single = logins.split_off(CLIENTS);
    let (mut flushes, mut alone, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.flags.rounds {
        flushes.push(flush(gateway.folder(), bench.flags.warm_up())?);
        alone.push(refresh(&target, &mut single, bench.flags.warm_up())?);
        together.push(refresh(&target, &mut logins, bench.flags.length())?);
    }
    let line = |name: &str, figures| Line::alone(name, "1/s", figures, kinds.len());
    let times = median(&together) / median(&flushes);
    let is_met = median(&together) >= GOAL.0 || times >= GOAL.1;
    Ok(vec![
        line("fsyncs of that disk, one after the other", flushes),
        line("POST /user/refresh, 1 client", alone),
        line("POST /user/refresh, 64 clients", together).goal(times, "3,000/s, or 25 x fsyncs", is_met),
    ])
}

/// Writes of 4 KiB per second, each with an fsync.
fn flush(folder: &Path, length: Duration) -> Outcome<f64> {
    let mut file = File::create(folder.join("flushed"))?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < length {
        file.write_all(&[0x5a; 4096])?;
        file.sync_all()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Refreshes per second. Each session refreshes repeatedly over its own connection.
fn refresh(target: &Target, logins: &mut [TokenPair], length: Duration) -> Outcome<f64> {
    let start = Instant::now();
    let counts = thread::scope(|scope| {
        let spawn = |login| scope.spawn(move || refresh_one(target, login, start + length));
        let threads: Vec<_> = logins.iter_mut().map(spawn).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| "a client panicked")?;
        threads.into_iter().map(join).collect::<Outcome<Vec<u32>>>()
    })?;
    Ok(f64::from(counts.iter().sum::<u32>()) / start.elapsed().as_secs_f64())
}

fn refresh_one(target: &Target, login: &mut TokenPair, end: Instant) -> Outcome<u32> {
    let mut connection = Connection::open(target)?;
    let mut count = 0;
    while Instant::now() < end {
        let body = format!(r#"{{"refreshToken":"{}"}}"#, login.refresh);
        let request = format!(
            "POST /user/refresh HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            login.access,
            body.len()
        );
        let response = connection.exchange(request.as_bytes())?;
        if response.status != 200 {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            return Err(format!("POST /user/refresh: {} {body}", response.status).into());
        }
        *login = TokenPair::read(&response.body)?;
        count += 1;
    }
    Ok(count)
}
