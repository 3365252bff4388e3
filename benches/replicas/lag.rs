//! The rows `lag`: from the response to a revocation until it is in force at another gateway, for each revocation.
//!
//! The other gateway shows in `/metrics` up to which entry the log is in force there. The bench reads that again and
//! again. The first response with an entry gives its time: never too early, and too late by at most the time since the
//! request before. Afterwards, each revoked token is sent to the other gateway.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::json;

use crate::Outcome;
use crate::figures::Bench;
use crate::postgres::{PostgresServer, USER};
use crate::replica::Replica;
use crate::tokens;

/// Pause between two looks at the cursor of the other gateway, which answers them beside its requests.
const PAUSE: Duration = Duration::from_millis(2);

/// How long after the last response an entry may come without being missed.
const GRACE: Duration = Duration::from_secs(1);

/// Newest entry of the log that is in force, with all before it.
const CURSOR: &str = "bearward_revocation_sequence";

/// The other gateway, seen once. Times are since the start of the run.
struct Look {
    sent: Duration,
    received: Duration,
    /// This many entries were in force.
    applied: usize,
}

impl Bench {
    /// `how` the other gateway learns of revocations.
    pub fn lag(&self, server: &PostgresServer, revocations: usize, how: &str) -> Outcome<()> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let (one, other) = (self.start(&store)?, self.start(&store)?);
        let tokens = tokens::sign(revocations + 1)?;
        let (began, is_done) = (Instant::now(), AtomicBool::new(false));
        let responses: Vec<AtomicU64> = (0..revocations).map(|_| AtomicU64::new(0)).collect();
        let (looks, took) = thread::scope(|scope| {
            let looks = scope.spawn(|| watch(&other, began, revocations, &is_done));
            let revoked = self.for_each(revocations, &|| one.admin(), &|admin, number| {
                let body = json!({ "jti": tokens::id(number), "issuer": tokens::ISSUER });
                admin.succeed("POST", "/admin/v1/revocations", &body)?;
                responses[number].store(u64::try_from(began.elapsed().as_micros())?, Ordering::Relaxed);
                Ok(())
            });
            let took = began.elapsed();
            is_done.store(true, Ordering::Release);
            let looks = looks.join().expect("no panic");
            revoked.and(looks).map(|looks| (looks, took))
        })?;
        let log = server.sql(USER, &format!("select name from {schema}.revocations order by sequence"));
        let numbers: Vec<usize> = log.lines().map(tokens::number).collect::<Result<_, _>>()?;
        let (lags, unknown) = lags(&numbers, &responses, &looks)?;
        let gaps = gaps(&looks)?;
        println!(
            "| lag {how}, {revocations} revocations in {took:.0?}, all measured: p50, p99, max | {} |",
            millis(&lags)
        );
        println!("| these are too high by at most the time between two looks: p50, p99, max | {} |", millis(&gaps));
        let mut caller = other.public(&tokens[revocations])?;
        if caller.call("GET", "/", None)?.status != 200 {
            return Err("a token that is not revoked is rejected".into());
        }
        let accepted = AtomicUsize::new(0);
        self.for_each(revocations, &|| other.public(""), &|caller, number| {
            tokens[number].clone_into(caller.token());
            let status = caller.call("GET", "/", None)?.status;
            accepted.fetch_add(usize::from(status != 401), Ordering::Relaxed);
            Ok(())
        })?;
        let absent = revocations.saturating_sub(numbers.len());
        println!(
            "| missed {how}, of {revocations}: not in the log; not in force {GRACE:?} later; tokens that the other \
             gateway accepts | {absent}, {unknown}, {} |",
            accepted.into_inner()
        );
        Ok(())
    }

    /// Calls `one` with each number below `count`, by all clients at the same time, each with its own connection.
    fn for_each<C>(
        &self,
        count: usize,
        connect: &(impl Fn() -> Outcome<C> + Sync),
        one: &(impl Fn(&mut C, usize) -> Outcome<()> + Sync),
    ) -> Outcome<()> {
        let next = AtomicUsize::new(0);
        let client = || -> Outcome<()> {
            let mut connection = connect()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                one(&mut connection, number)?;
            }
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients).map(|_| scope.spawn(client)).collect();
            clients.into_iter().try_for_each(|client| client.join().expect("no panic"))
        })
    }
}

/// Looks at the cursor until all entries are in force, or until [`GRACE`] after the last response.
fn watch(other: &Replica, began: Instant, revocations: usize, is_done: &AtomicBool) -> Outcome<Vec<Look>> {
    let (mut admin, mut looks, mut deadline) = (other.admin()?, Vec::new(), None);
    loop {
        let sent = began.elapsed();
        let applied = admin.metric(CURSOR)? as usize;
        let received = began.elapsed();
        looks.push(Look { sent, received, applied });
        if is_done.load(Ordering::Acquire) {
            let deadline = *deadline.get_or_insert(received + GRACE);
            if applied >= revocations || received > deadline {
                return Ok(looks);
            }
        }
        thread::sleep(PAUSE);
    }
}

/// The lag of each entry of the log, and how many never came. `numbers`: the revocation of each entry.
fn lags(numbers: &[usize], responses: &[AtomicU64], looks: &[Look]) -> Outcome<(Histogram<u64>, usize)> {
    let (mut lags, mut unknown) = (Histogram::new(3)?, 0);
    let mut looks = looks.iter().peekable();
    for (index, number) in numbers.iter().enumerate() {
        while looks.next_if(|look| look.applied <= index).is_some() {}
        let Some(look) = looks.peek() else {
            unknown += 1;
            continue;
        };
        let response = Duration::from_micros(responses[*number].load(Ordering::Relaxed));
        // It may be in force there before the response is here.
        lags.record(u64::try_from(look.received.saturating_sub(response).as_micros())?)?;
    }
    Ok((lags, unknown))
}

/// From each request to the response to the next one.
fn gaps(looks: &[Look]) -> Outcome<Histogram<u64>> {
    let mut gaps = Histogram::new(3)?;
    for pair in looks.windows(2) {
        gaps.record(u64::try_from((pair[1].received - pair[0].sent).as_micros())?)?;
    }
    Ok(gaps)
}

/// p50, p99 and maximum of microseconds.
pub fn millis(times: &Histogram<u64>) -> String {
    let [p50, p99] = [0.5, 0.99].map(|quantile| times.value_at_quantile(quantile) as f64 / 1000.0);
    format!("{p50:.1}, {p99:.1}, {:.1} ms", times.max() as f64 / 1000.0)
}
