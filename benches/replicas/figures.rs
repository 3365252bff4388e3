//! The rows.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::json;

use crate::Outcome;
use crate::postgres::{PostgresServer, USER};
use crate::replica::{Replica, TokenPair};

/// One of this number of revocations is measured on its way to the other gateway.
const SAMPLE: usize = 100;

pub struct Bench {
    pub program: PathBuf,
    pub upstream: SocketAddr,
    pub clients: usize,
}

impl Bench {
    pub fn start(&self, store: &str) -> Outcome<Replica> {
        Replica::start(&self.program, store, self.upstream)
    }

    /// How long after the response to a revocation another gateway rejects the token. `how` it learns of revocations.
    pub fn reach(&self, server: &PostgresServer, revocations: usize, how: &str) -> Outcome<()> {
        let store = server.store_keys();
        let (one, other) = (self.start(&store)?, self.start(&store)?);
        let (next, latencies) = (AtomicUsize::new(0), Mutex::new(Histogram::<u64>::new(3)?));
        let failed = Mutex::new(None);
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| {
                    if let Err(error) = revoke_and_measure(&one, &other, &next, revocations, &latencies) {
                        *failed.lock().expect("no panic") = Some(error);
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner().expect("no panic") {
            return Err(error);
        }
        let latencies = latencies.into_inner().expect("no panic");
        let millis = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        println!(
            "| until another gateway rejects the token, {how}, {revocations} revocations in {:.0?}, {} measured: p50, \
             p99, max | {:.1}, {:.1}, {:.1} ms |",
            began.elapsed(),
            latencies.len(),
            millis(0.5),
            millis(0.99),
            latencies.max() as f64 / 1000.0
        );
        let missed = missed(&other, revocations)?;
        println!("| entries that the other gateway has not applied a second later, {how} | {missed} |");
        Ok(())
    }

    /// How long a gateway takes to start with a long log.
    pub fn catch_up(&self, server: &PostgresServer, entries: usize) -> Outcome<()> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let mut replica = self.start(&store)?;
        let empty = replica.restart(&self.program)?;
        let memory = replica.resident()?;
        server.sql(
            USER,
            &format!(
                "set search_path to {schema};
                 insert into revocations (sequence, kind, issuer, name, at, until, tag)
                 select n, 'token', 'https://login.example', n::text, 1, 9000000000000, decode(md5(n::text), 'hex')
                 from generate_series(1, {entries}) n;
                 update meta set value = {entries}, tag = decode(md5('{entries}'), 'hex')
                 where name = 'revocation_sequence'"
            ),
        );
        let full = replica.restart(&self.program)?;
        let applied = replica.metric("bearward_revocation_sequence")?;
        if applied != entries as f64 {
            return Err(format!("{applied} of {entries} entries are in force").into());
        }
        println!("| start of a gateway with an empty log; with {entries} entries | {empty:.2?}; {full:.2?} |");
        let per_entry = replica.resident()?.saturating_sub(memory) / entries as u64;
        println!("| memory of a gateway for each entry | {per_entry} bytes |");
        Ok(())
    }

    /// From `kill -9` of the database to the first refresh that succeeds.
    pub fn recovery(&self, server: &mut PostgresServer) -> Outcome<()> {
        let replica = self.start(&server.store_keys())?;
        let pair = replica.admin()?.login("alice")?;
        let began = Instant::now();
        server.kill();
        let killed = began.elapsed();
        server.restart();
        let up = began.elapsed();
        refresh_at_last(&replica, &pair)?;
        println!(
            "| kill -9 of the database; it accepts connections; the first refresh | {killed:.2?}; {up:.2?}; {:.2?} |",
            began.elapsed()
        );
        Ok(())
    }

    /// From `kill -9` of a primary with a synchronous standby to the first refresh that succeeds at the standby, which
    /// is promoted at once.
    pub fn promotion(&self, mut primary: PostgresServer) -> Outcome<()> {
        let standby = primary.standby(primary.port);
        primary.wait_for_standby_at_commits();
        let schema = primary.schema();
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port);
        let url = format!("postgres://{USER}@{hosts}/{USER}?sslmode=disable&target_session_attrs=read-write");
        let replica = self.start(&format!("postgres = \"{url}\"\nschema = \"{schema}\"\n"))?;
        let pair = replica.admin()?.login("alice")?;
        primary.kill();
        let began = Instant::now();
        standby.promote();
        let promoted = began.elapsed();
        refresh_at_last(&replica, &pair)?;
        println!(
            "| from the death of the primary: the standby is promoted; the first refresh | {promoted:.2?}; {:.2?} |",
            began.elapsed()
        );
        Ok(())
    }
}

/// Tries to refresh until it succeeds.
fn refresh_at_last(replica: &Replica, pair: &TokenPair) -> Outcome<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut caller = replica.public(&pair.access)?;
    while let Err(error) = caller.refresh(pair) {
        if Instant::now() >= deadline {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How many revocations the gateway has not applied after a second.
fn missed(gateway: &Replica, revocations: usize) -> Outcome<f64> {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let missed = revocations as f64 - gateway.metric("bearward_revocation_sequence")?;
        if missed <= 0.0 || Instant::now() >= deadline {
            return Ok(missed);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn revoke_and_measure(
    one: &Replica,
    other: &Replica,
    next: &AtomicUsize,
    revocations: usize,
    latencies: &Mutex<Histogram<u64>>,
) -> Outcome<()> {
    let mut admin = one.admin()?;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= revocations {
            return Ok(());
        }
        if !number.is_multiple_of(SAMPLE) {
            admin.succeed("POST", "/admin/v1/revocations", &json!({ "jti": format!("token-{number}") }))?;
            continue;
        }
        let pair = admin.login(&format!("subject-{number}"))?;
        let mut caller = other.public(&pair.access)?;
        if caller.call("GET", "/", None)?.status != 200 {
            return Err("a new token is rejected".into());
        }
        let token_id = pair.refresh.split('_').nth(1).ok_or("a refresh token has an id")?.to_owned();
        admin.succeed("DELETE", &format!("/admin/v1/tokens/{token_id}"), &json!(null))?;
        let revoked = Instant::now();
        while caller.call("GET", "/", None)?.status != 401 {
            thread::sleep(Duration::from_micros(200));
        }
        let micros = u64::try_from(revoked.elapsed().as_micros())?;
        latencies.lock().expect("no panic").record(micros)?;
    }
}
