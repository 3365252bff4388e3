//! A request with a known token, with the shared store beside the embedded one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::Outcome;
use crate::figures::Bench;
use crate::postgres::PostgresServer;
use crate::replica::Replica;

/// The gateways take turns, so that a change of the machine's speed affects both.
const ROUNDS: usize = 9;
const CLIENTS: usize = 8;

impl Bench {
    /// CPU time of the whole gateway process for each request: the median of the rounds.
    pub fn known_token(&self, server: &PostgresServer, requests: usize) -> Outcome<()> {
        let (embedded, shared) = (self.start("")?, self.start(&server.store_keys())?);
        let gateways = [(&embedded, embedded.admin()?.login("alice")?), (&shared, shared.admin()?.login("alice")?)];
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for ((gateway, pair), micros) in gateways.iter().zip(&mut rounds) {
                let before = gateway.cpu_time()?;
                send(gateway, &pair.access, requests)?;
                let spent = gateway.cpu_time()?.saturating_sub(before);
                micros.push(spent.as_secs_f64() * 1e6 / requests as f64);
            }
        }
        let [embedded, shared] = rounds.map(median);
        println!(
            "| a request with a known token, CPU: SQLite, PostgreSQL | {embedded:.1}, {shared:.1} us; {:.2} times |",
            shared / embedded
        );
        Ok(())
    }
}

fn send(gateway: &Replica, access: &str, requests: usize) -> Outcome<()> {
    let left = AtomicUsize::new(requests);
    let client = || -> Outcome<()> {
        let mut caller = gateway.public(access)?;
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let status = caller.call("GET", "/", None)?.status;
            if status != 200 {
                return Err(format!("a known token got {status}").into());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no panic"))
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
