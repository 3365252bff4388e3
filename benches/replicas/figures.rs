//! The rows.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::json;

use crate::Outcome;
use crate::postgres::{PostgresServer, USER};
use crate::replica::Replica;

/// One of this number of revocations is measured on its way to the other gateway.
const SAMPLE: usize = 100;

/// What a refresh sends to the database, for pgbench: read, compare and set, with an audit event.
const BARE_REFRESH: &str = r"\set place random(1, :families)
select id, generation as seen, subject, scope, audience, client_id, claims, label, salt, root, rotated_at, confirmed,
    created_at, last_used_at, idle, idle_expiry, absolute_expiry, revoked_at, revoked_reason, address,
    greatest((select s.not_after from subjects s where s.subject = f.subject),
        (select m.value from meta m where m.name = 'watermark' and m.value > 0)) as mark
    from families f where f.label = 'bench-' || :place \gset
with rotated as (
    update families set generation = :seen + 1, root = 1, rotated_at = rotated_at + 1, last_used_at = last_used_at + 1,
        idle_expiry = idle_expiry + 1
    where id = :'id' and generation = :seen and revoked_at is null returning id
), recorded as (
    insert into audit (id, event)
    select decode(md5(random()::text), 'hex'), repeat('x', 300) from rotated
) select id from rotated;
";

pub struct Bench {
    pub program: PathBuf,
    pub upstream: SocketAddr,
    pub clients: usize,
    pub duration: Duration,
}

impl Bench {
    fn start(&self, store: &str) -> Outcome<Replica> {
        Replica::start(&self.program, store, self.upstream)
    }

    /// Refreshes per second with one gateway and with three, and of the bare statements.
    pub fn refreshes(&mut self, server: &PostgresServer) -> Outcome<()> {
        let store = server.store_keys();
        let replicas: Vec<Replica> = (0..3).map(|_| self.start(&store)).collect::<Outcome<_>>()?;
        for count in [1, 3] {
            let per_second =
                self.closed_loop(|client, stop, done| refresh(&replicas[client % count], client, stop, done))?;
            println!("| refreshes per second, {count} gateways | {per_second:.0} |");
        }
        drop(replicas);
        let bare = self.bare_refreshes(server)?;
        println!("| the bare statements of a refresh per second, in pgbench | {bare} |");
        Ok(())
    }

    /// Runs each client in a thread of its own. Returns how many calls per second they completed.
    fn closed_loop(&self, client: impl Fn(usize, &AtomicBool, &AtomicUsize) -> Outcome<()> + Sync) -> Outcome<f64> {
        let (stop, done, failed) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(None));
        let counted = thread::scope(|scope| {
            for number in 0..self.clients {
                let (client, stop, done, failed) = (&client, &stop, &done, &failed);
                scope.spawn(move || {
                    if let Err(error) = client(number, stop, done) {
                        *failed.lock().expect("no panic") = Some(error);
                    }
                });
            }
            // Logins and first connections are not counted.
            thread::sleep(Duration::from_secs(1));
            let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
            thread::sleep(self.duration);
            let counted = (done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            counted
        });
        match failed.into_inner().expect("no panic") {
            Some(error) => Err(error),
            None => Ok(counted),
        }
    }

    fn bare_refreshes(&self, server: &PostgresServer) -> Outcome<String> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let replica = self.start(&store)?;
        let mut admin = replica.admin()?;
        for number in 1..=self.clients {
            let login = json!({ "subject": format!("subject-{number}"), "label": format!("bench-{number}") });
            admin.succeed("POST", "/admin/v1/tokens", &login)?;
        }
        drop(replica);
        server.sql(USER, &format!("set search_path to {schema}; create index on families (label)"));
        let script = server.folder.join("refresh.sql");
        fs::write(&script, format!("set search_path to {schema};\n{BARE_REFRESH}"))?;
        let mut pgbench = Command::new(crate::postgres::binary("pgbench"));
        pgbench.args(["-n", "-M", "prepared", "-h", "127.0.0.1", "-U", USER, "-c", "12", "-j", "2"]);
        pgbench.args(["-p", &server.port.to_string(), "-T", &self.duration.as_secs().to_string()]);
        pgbench.args(["-D", &format!("families={}", self.clients), "-f"]).arg(&script).arg(USER);
        let output = pgbench.env_remove("LD_PRELOAD").output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let line = line.ok_or_else(|| format!("pgbench: {text} {}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(line.split(['.', ' ']).next().unwrap_or_default().to_owned())
    }

    /// Revocations per second of one caller, and of many, which the gateway gathers.
    pub fn revocations(&mut self, server: &PostgresServer) -> Outcome<()> {
        let replica = self.start(&server.store_keys())?;
        let revoke = |client: usize, stop: &AtomicBool, done: &AtomicUsize| {
            let mut admin = replica.admin()?;
            while !stop.load(Ordering::Relaxed) {
                let number = done.fetch_add(1, Ordering::Relaxed);
                admin.succeed("POST", "/admin/v1/revocations", &json!({ "jti": format!("{client}-{number}") }))?;
            }
            Ok(())
        };
        let clients = std::mem::replace(&mut self.clients, 1);
        println!("| revocations per second, 1 caller | {:.0} |", self.closed_loop(revoke)?);
        self.clients = clients;
        println!("| revocations per second, {clients} callers | {:.0} |", self.closed_loop(revoke)?);
        Ok(())
    }

    /// How long after the response to a revocation another gateway rejects the token.
    pub fn reach(&self, server: &PostgresServer, revocations: usize) -> Outcome<()> {
        let store = server.store_keys();
        let (one, other) = (self.start(&store)?, self.start(&store)?);
        let (next, latencies) = (AtomicUsize::new(0), Mutex::new(Histogram::<u64>::new(3)?));
        let failed = Mutex::new(None);
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
            "| until another gateway rejects the token, {revocations} revocations, {} measured: p50, p99, max | \
             {:.1}, {:.1}, {:.1} ms |",
            latencies.len(),
            millis(0.5),
            millis(0.99),
            latencies.max() as f64 / 1000.0
        );
        let missed = one.metric("bearward_revocation_sequence")? - other.metric("bearward_revocation_sequence")?;
        println!("| entries that the other gateway has not applied at the end | {missed} |");
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
        let mut pair = replica.admin()?.login("alice")?;
        pair = replica.public(&pair.access)?.refresh(&pair)?;
        let began = Instant::now();
        server.kill();
        let killed = began.elapsed();
        server.restart();
        let up = began.elapsed();
        let mut caller = replica.public(&pair.access)?;
        while caller.refresh(&pair).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        println!(
            "| kill -9 of the database; it accepts connections; the first refresh | {killed:.2?}; {up:.2?}; {:.2?} |",
            began.elapsed()
        );
        Ok(())
    }
}

fn refresh(replica: &Replica, client: usize, stop: &AtomicBool, done: &AtomicUsize) -> Outcome<()> {
    let mut pair = replica.admin()?.login(&format!("subject-{client}"))?;
    let mut caller = replica.public(&pair.access)?;
    while !stop.load(Ordering::Relaxed) {
        pair = caller.refresh(&pair)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
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
