//! The rows `write-back` and `sweep`: what a gateway does beside requests, and what it costs them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::json;

use crate::Outcome;
use crate::figures::Bench;
use crate::lag::millis;
use crate::postgres::{PostgresServer, USER};
use crate::replica::{Caller, Replica};
use crate::tokens;

/// Longest time that a row waits for something.
const PATIENCE: Duration = Duration::from_secs(300);

/// Milliseconds since 1970.
const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint";

/// No gateway sweeps while the bench has the lease.
const HOLD: &str = "insert into leases (name, holder, epoch, until) values ('sweep', 'bench', 1, 9000000000000)
    on conflict (name) do update set holder = 'bench', until = 9000000000000";
const RELEASE: &str = "delete from leases where name = 'sweep'";

/// What the `sweep` row does to the gateway.
#[derive(Clone, Copy)]
pub struct Load {
    /// Entries of the log that expire in each second.
    pub expiries: usize,
    /// In each second.
    pub refreshes: u32,
    /// How long each turn takes.
    pub turn: Duration,
}

impl Bench {
    /// From the loss of revocations that two gateways know until the database has them again, while clients revoke.
    pub fn write_back(&self, server: &PostgresServer, count: usize) -> Outcome<()> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let gateways = [self.start(&store)?, self.start(&store)?];
        let issuer = tokens::ISSUER;
        let append = format!(
            "insert into revocations (sequence, kind, issuer, name, at, until, tag)
                 select n, 'token', '{issuer}', 'lost-' || n, {NOW}, {NOW} + 3600000, decode(md5(n::text), 'hex')
                 from generate_series(1, {count}) n;
             update meta set value = {count}, tag = decode(md5('{count}'), 'hex') where name = 'revocation_sequence'"
        );
        sql(server, &schema, &append);
        for gateway in &gateways {
            wait_until(gateway, |admin| Ok(admin.metric("bearward_revocation_sequence")? == count as f64))?;
        }
        let lose = "truncate revocations; update meta set value = 0, tag = '' where name = 'revocation_sequence'";
        sql(server, &schema, lose);
        let began = Instant::now();
        let is_over = AtomicBool::new(false);
        let latencies = thread::scope(|scope| {
            let revoke = |client: usize| revoke_until(&gateways[client % 2], client, &is_over);
            let clients: Vec<_> = (0..self.clients).map(|client| scope.spawn(move || revoke(client))).collect();
            let written = gateways.iter().try_for_each(wait_until_written_back);
            is_over.store(true, Ordering::Release);
            let latencies = merged(clients.into_iter().map(|client| client.join().expect("no panic")));
            written.and(latencies)
        })?;
        let took = began.elapsed();
        let per_second = latencies.len() as f64 / took.as_secs_f64();
        println!(
            "| {count} lost revocations come back; beside them {per_second:.0} revocations/s: p50, p99, max | \
             {took:.1?}; {} |",
            millis(&latencies)
        );
        Ok(())
    }

    /// Refreshes while entries of the log expire: first, no gateway sweeps, and then one does.
    pub fn sweep(&self, server: &PostgresServer, load: Load) -> Outcome<()> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let gateway = self.start(&store)?;
        let pause = Duration::from_secs(1) * u32::try_from(self.clients)? / load.refreshes;
        let Load { expiries, turn, .. } = load;
        for (what, prepare) in [("not swept", HOLD), ("swept", RELEASE)] {
            sql(server, &schema, prepare);
            let is_over = AtomicBool::new(false);
            let latencies = thread::scope(|scope| {
                let refresh = |client| refresh_until(&gateway, client, pause, &is_over);
                scope.spawn(|| expire_until(server, &schema, expiries, &is_over));
                let clients: Vec<_> = (0..self.clients).map(|client| scope.spawn(move || refresh(client))).collect();
                thread::sleep(turn);
                is_over.store(true, Ordering::Release);
                merged(clients.into_iter().map(|client| client.join().expect("no panic")))
            })?;
            let left = sql(server, &schema, &format!("select count(*) from revocations where until < {NOW}"));
            let age = gateway.admin()?.metric("bearward_store_expired_age_seconds")?;
            println!(
                "| {expiries} entries of the log expire each second, {what}: {} refreshes, p50, p99, max; rows that \
                 wait; seconds of the oldest | {}; {left}; {age:.0} |",
                latencies.len(),
                millis(&latencies)
            );
        }
        Ok(())
    }
}

fn sql(server: &PostgresServer, schema: &str, text: &str) -> String {
    server.sql(USER, &format!("set search_path to {schema}; {text}"))
}

fn wait_until_written_back(gateway: &Replica) -> Outcome<()> {
    wait_until(gateway, |admin| {
        let was_noticed = admin.metric("bearward_store_forked_total")? > 0.0;
        Ok(was_noticed && admin.metric("bearward_revocations_lost")? == 0.0)
    })
}

fn wait_until(gateway: &Replica, mut condition: impl FnMut(&mut Caller) -> Outcome<bool>) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut admin = gateway.admin()?;
    while !condition(&mut admin)? {
        if Instant::now() > deadline {
            return Err(format!("a row waits for longer than {PATIENCE:?}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn revoke_until(gateway: &Replica, client: usize, is_over: &AtomicBool) -> Outcome<Histogram<u64>> {
    let mut admin = gateway.admin()?;
    let mut latencies = Histogram::new(3)?;
    while !is_over.load(Ordering::Acquire) {
        let began = Instant::now();
        let jti = format!("new-{client}-{}", latencies.len());
        admin.succeed("POST", "/admin/v1/revocations", &json!({ "jti": jti, "issuer": tokens::ISSUER }))?;
        latencies.record(u64::try_from(began.elapsed().as_micros())?)?;
    }
    Ok(latencies)
}

fn refresh_until(gateway: &Replica, client: usize, pause: Duration, is_over: &AtomicBool) -> Outcome<Histogram<u64>> {
    let mut pair = gateway.admin()?.login(&format!("user-{client}"))?;
    let mut caller = gateway.public(&pair.access)?;
    let mut latencies = Histogram::new(3)?;
    while !is_over.load(Ordering::Acquire) {
        let began = Instant::now();
        pair = caller.refresh(&pair)?;
        latencies.record(u64::try_from(began.elapsed().as_micros())?)?;
        thread::sleep(pause.saturating_sub(began.elapsed()));
    }
    Ok(latencies)
}

/// Appends entries that expire at once, four times a second.
fn expire_until(server: &PostgresServer, schema: &str, per_second: usize, is_over: &AtomicBool) {
    let some = per_second / 4;
    let append = format!(
        "with head as (
             update meta set value = value + {some}, tag = decode(md5((value + {some})::text), 'hex')
             where name = 'revocation_sequence' returning value - {some} as before
         ), logged as (
             insert into revocations (sequence, kind, issuer, name, at, until, tag)
             select h.before + n, 'token', '{issuer}', 'old-' || h.before + n, {NOW} - 900000, {NOW},
                 decode(md5((h.before + n)::text), 'hex')
             from head h, generate_series(1, {some}) n
         )
         insert into endings (sequence, kind, issuer, name, at, reason, until)
         select h.before + n, 'token', '{issuer}', 'old-' || h.before + n, {NOW} - 900000, 'admin', {NOW}
         from head h, generate_series(1, {some}) n",
        issuer = tokens::ISSUER,
    );
    let began = Instant::now();
    let mut turn = 0;
    while !is_over.load(Ordering::Acquire) {
        sql(server, schema, &append);
        turn += 1;
        thread::sleep((Duration::from_millis(250) * turn).saturating_sub(began.elapsed()));
    }
}

fn merged(all: impl Iterator<Item = Outcome<Histogram<u64>>>) -> Outcome<Histogram<u64>> {
    let mut merged = Histogram::new(3)?;
    for each in all {
        merged.add(each?)?;
    }
    Ok(merged)
}
