//! The gateways of the rows, and the rows about starts and recoveries.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::postgres::{PostgresServer, USER};
use crate::replica::{Replica, TokenPair};

pub struct Bench {
    pub program: PathBuf,
    pub upstream: SocketAddr,
    pub clients: usize,
}

impl Bench {
    pub fn start(&self, store: &str) -> Outcome<Replica> {
        Replica::start(&self.program, store, self.upstream)
    }

    /// How long a gateway takes to start with a long log.
    pub fn catch_up(&self, server: &PostgresServer, entries: usize) -> Outcome<()> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let mut replica = self.start(&store)?;
        let empty = replica.restart(&self.program)?;
        let [memory, _] = replica.memory()?;
        server.sql(
            USER,
            &format!(
                "set search_path to {schema};
                 insert into revocations (sequence, kind, issuer, name, at, until, tag)
                 select n, 'token', 'https://login.example', n::text,
                     (extract(epoch from clock_timestamp()) * 1000)::bigint, 9000000000000, decode(md5(n::text), 'hex')
                 from generate_series(1, {entries}) n;
                 update meta set value = {entries}, tag = decode(md5('{entries}'), 'hex')
                 where name = 'revocation_sequence'"
            ),
        );
        let full = replica.restart(&self.program)?;
        let applied = replica.admin()?.metric("bearward_revocation_sequence")?;
        if applied != entries as f64 {
            return Err(format!("{applied} of {entries} entries are in force").into());
        }
        println!("| start of a gateway with an empty log; with {entries} entries | {empty:.2?}; {full:.2?} |");
        let [resident, peak] = replica.memory()?;
        let megabytes = [memory, resident, peak].map(|bytes| bytes / 1_000_000);
        println!("| memory with an empty log; with {entries} entries; at most during the start | {megabytes:?} MB |");
        let per_entry = resident.saturating_sub(memory) / entries as u64;
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
