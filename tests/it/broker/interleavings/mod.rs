//! Refreshes, logouts, mass revocations, logins, lost answers and crashes, in thousands of orders: nothing that was issued
//! before a revocation was answered is good for anything after that, no revocation is lost, no token has two children, and
//! nobody is logged out for nothing.
//!
//! The broker, the revocation set and the store are the real ones; only the order is not left to chance. Each seed gives one
//! order, the same each time; a failure names its own:
//!
//! ```console
//! $ BEARWARD_SEED=4711 cargo test --test it interleavings
//! $ BEARWARD_ROUNDS=10000 cargo test --test it interleavings
//! ```
//!
//! The database lies in memory where there is `/dev/shm`: what a flush is worth is asked by `killed` and `store::storm`.

mod gate;
mod model;
mod process;

use std::env;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bearward::broker::TokenPair;
use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::generate_pem;
use bearward::types::clock::UnixTime;
use bearward::types::reject::{Reason, Reject};
use futures_util::task::noop_waker;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::store::given::{AFTER_GRACE, LOGIN};
use crate::support::repetitions::repetitions;
use model::{CachedToken, Moment, Tokens};
use process::Process;

const ORDERS: usize = 4_000;
/// Steps of one order, and calls that are under way at once.
const STEPS: Moment = 20;
const AT_ONCE: usize = 4;
/// Orders that share a database: making one costs more than an order.
const SHARING: usize = 250;
/// One order in so many has a crash in it, as a start costs as much as some orders.
const CRASHING: u64 = 16;

#[test]
fn whatever_the_order_what_was_revoked_is_dead_and_nothing_else() {
    let key = generate_pem(Algorithm::EdDSA).expect("a key");
    let key = str::from_utf8(key.expose()).expect("PEM is text");
    if let Ok(seed) = env::var("BEARWARD_SEED") {
        return run([seed.parse().expect("a number")], key);
    }
    // Two threads, each with databases of its own.
    let seeds: Vec<u64> = (0..repetitions(ORDERS) as u64).collect();
    let (one, other) = seeds.split_at(seeds.len() / 2);
    std::thread::scope(|threads| {
        for half in [one, other] {
            threads.spawn(move || half.chunks(SHARING).for_each(|seeds| run(seeds.iter().copied(), key)));
        }
    });
}

fn run(seeds: impl IntoIterator<Item = u64>, key: &str) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder");
    let path = folder.path().join("bearward.db");
    let mut begin = LOGIN;
    let mut process = runtime.block_on(Process::start(&path, key, begin));
    for seed in seeds {
        let _named = Named(seed);
        // Later than all that the order before had to do with.
        begin = begin + Duration::from_secs(1_000);
        let mut order = Order::new(seed, begin, &runtime);
        order.first_login(&process);
        if order.dice.one_in(CRASHING) {
            order.go_on(&process, STEPS / 2);
            order.crash();
            drop(process);
            process = runtime.block_on(Process::start(&path, key, begin));
        }
        order.go_on(&process, STEPS);
        order.end(&process);
    }
}

/// Says which seed it was.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was BEARWARD_SEED={}", self.0);
        }
    }
}

/// SplitMix64: any seed gives a sequence without a pattern that matters here.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % count as u64).expect("is below a usize")
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(usize::try_from(count).expect("is small")) == 0
    }
}

/// What is being asked; logins by their place.
enum Asked {
    Issue,
    Capture,
    Refresh { login: usize, presented: usize },
    Revoke { login: usize },
    RevokeAll { watermark: usize },
    Confirm,
}

enum Told {
    Pair(Result<TokenPair, Reject>),
    Done(Result<(), Reject>),
}

struct Call<'p> {
    asked: Asked,
    started: Moment,
    response: Pin<Box<dyn Future<Output = Told> + 'p>>,
}

/// A mass revocation: when it was asked for, and when it was sure to be over.
struct Watermark {
    started: Moment,
    over: Option<Moment>,
}

struct Order<'r> {
    runtime: &'r Runtime,
    dice: Dice,
    subject: String,
    now: UnixTime,
    step: Moment,
    logins: Vec<CachedToken>,
    /// When each login was answered.
    known_since: Vec<Moment>,
    watermarks: Vec<Watermark>,
}

impl<'r> Order<'r> {
    fn new(seed: u64, now: UnixTime, runtime: &'r Runtime) -> Self {
        Order {
            runtime,
            dice: Dice(seed),
            subject: format!("subject-{seed}"),
            now,
            step: 0,
            logins: Vec::new(),
            known_since: Vec::new(),
            watermarks: Vec::new(),
        }
    }

    fn first_login(&mut self, process: &Process) {
        let mut calls = vec![self.begin(process, Asked::Issue)];
        self.finish(process, &mut calls);
    }

    /// Until this many steps are done.
    fn go_on(&mut self, process: &Process, until: Moment) {
        let mut calls = Vec::new();
        while self.step < until {
            self.step += 1;
            match self.dice.below(20) {
                0..8 if calls.len() < AT_ONCE => {
                    let asked = self.something_to_ask();
                    calls.push(self.begin(process, asked));
                }
                0..12 => self.let_some_through(process),
                12..16 if !calls.is_empty() => {
                    let place = self.dice.below(calls.len());
                    self.look_at(&mut calls, place);
                }
                // The client has gone. What it asked for happens, or not.
                16 if !calls.is_empty() => drop(calls.remove(self.dice.below(calls.len()))),
                17 => self.now = self.now + [Duration::from_millis(300), AFTER_GRACE][self.dice.below(2)],
                _ => self.use_something(process),
            }
        }
        // Before a crash, calls are left as they are.
        if until == STEPS {
            self.finish(process, &mut calls);
        }
    }

    fn something_to_ask(&mut self) -> Asked {
        let login = self.dice.below(self.logins.len());
        let newest = self.logins[login].generations.len() - 1;
        match self.dice.below(16) {
            0..6 => Asked::Refresh { login, presented: newest },
            6..8 => Asked::Refresh { login, presented: self.dice.below(newest + 1) },
            8..10 => Asked::Revoke { login },
            10 => Asked::Issue,
            11 => Asked::Capture,
            12 => Asked::Confirm,
            _ => {
                self.watermarks.push(Watermark { started: self.step, over: None });
                Asked::RevokeAll { watermark: self.watermarks.len() - 1 }
            }
        }
    }

    fn begin<'p>(&mut self, process: &'p Process, asked: Asked) -> Call<'p> {
        let now = self.now;
        let response: Pin<Box<dyn Future<Output = Told> + 'p>> = match &asked {
            Asked::Issue => {
                let subject = self.subject.clone();
                Box::pin(async move { Told::Pair(process.issue(&subject, now).await) })
            }
            Asked::Capture => {
                let subject = self.subject.clone();
                Box::pin(async move { Told::Pair(process.capture(&subject, now).await) })
            }
            Asked::Refresh { login, presented } => {
                let known = &mut self.logins[*login];
                known.unheard.push(*presented);
                let (bearer, token) = (known.newest().access.clone(), &known.generations[*presented][0]);
                let token = token.refresh.clone();
                Box::pin(async move { Told::Pair(process.refresh(&bearer, &token, now).await) })
            }
            Asked::Revoke { login } => {
                let by_an_operator = self.dice.one_in(3);
                let known = &mut self.logins[*login];
                known.doomed = true;
                let (bearer, id) = (known.newest().access.clone(), known.id);
                Box::pin(async move {
                    Told::Done(match by_an_operator {
                        true => process.revoke(id, now).await,
                        false => process.log_out(&bearer, id, now).await,
                    })
                })
            }
            Asked::RevokeAll { .. } => {
                self.logins.iter_mut().for_each(|known| known.doomed = true);
                let subject = (!self.dice.one_in(3)).then(|| self.subject.clone());
                Box::pin(async move { Told::Done(process.revoke_all(subject, now).await) })
            }
            Asked::Confirm => Box::pin(async move { Told::Done(process.write_confirmations().await) }),
        };
        let mut call = Call { asked, started: self.step, response };
        // To the store's gate.
        if let Poll::Ready(told) = self.poll(&mut call) {
            let answered = std::future::ready(told);
            call.response = Box::pin(answered);
        }
        call
    }

    fn poll(&self, call: &mut Call<'_>) -> Poll<Told> {
        let _time = self.runtime.enter();
        call.response.as_mut().poll(&mut Context::from_waker(&noop_waker()))
    }

    fn let_some_through(&mut self, process: &Process) {
        let waiting = process.gate.waiting();
        if waiting > 0 {
            let count = 1 + self.dice.below(waiting);
            self.runtime.block_on(process.gate.let_through(count));
        }
    }

    /// Hands over an answer, if it is there.
    fn look_at(&mut self, calls: &mut Vec<Call<'_>>, place: usize) {
        if let Poll::Ready(told) = self.poll(&mut calls[place]) {
            let call = calls.remove(place);
            self.step += 1;
            self.hear(&call.asked, call.started, told);
        }
    }

    fn hear(&mut self, asked: &Asked, started: Moment, told: Told) {
        let now = self.step;
        match (asked, told) {
            (Asked::Issue, Told::Pair(Ok(pair))) => {
                let mut known = CachedToken::new(&pair);
                known.doomed = self.watermarks.iter().any(|mark| mark.over.is_none_or(|over| over >= started));
                self.logins.push(known);
                self.known_since.push(now);
            }
            (Asked::Capture, Told::Pair(Ok(pair))) => {
                let mut known = CachedToken::new(&pair);
                known.doomed = self.watermarks.iter().any(|mark| mark.over.is_none_or(|over| over >= started));
                // Whoever revokes everything means also whoever is logging in.
                if self.watermarks.iter().any(|mark| mark.started > started && mark.over.is_some()) {
                    known.dies(now);
                }
                self.logins.push(known);
                self.known_since.push(started);
            }
            (Asked::Capture, Told::Pair(Err(reject))) => {
                let overtaken = self.watermarks.iter().any(|mark| mark.over.is_none_or(|over| over >= started));
                assert!(reject.reason == Reason::LoginCapture && overtaken, "{reject:?}");
            }
            (Asked::Refresh { login, presented }, Told::Pair(response)) => {
                self.logins[*login].refreshed(*presented, started, now, response);
            }
            (Asked::Revoke { login }, Told::Done(Ok(()))) => self.logins[*login].dies(now),
            // The bearer of a logout was revoked before.
            (Asked::Revoke { login }, Told::Done(Err(reject))) => {
                assert!(reject.reason == Reason::Revoked && self.logins[*login].may_be_dead(), "{:?}", reject.reason);
            }
            (Asked::RevokeAll { watermark }, Told::Done(Ok(()))) => {
                self.watermarks[*watermark].over = Some(now);
                for (known, since) in self.logins.iter_mut().zip(&self.known_since) {
                    if *since < started {
                        known.dies(now);
                    }
                }
            }
            (Asked::Confirm, Told::Done(Ok(()))) => {}
            (_, Told::Pair(Err(reject)) | Told::Done(Err(reject))) => panic!("{:?}: {}", reject.reason, reject.detail),
            _ => panic!("a response of another kind"),
        }
    }

    /// A request with some token.
    fn use_something(&mut self, process: &Process) {
        let place = self.dice.below(self.logins.len());
        let tokens: Vec<&Tokens> = self.logins[place].all().collect();
        let token = tokens[self.dice.below(tokens.len())].access.clone();
        self.check_use(process, place, &token);
    }

    fn check_use(&self, process: &Process, place: usize, access: &str) {
        let known = &self.logins[place];
        match process.admit(access, self.now) {
            Ok(_) => assert!(known.dead_since.is_none(), "a token of a dead login was let through"),
            Err(reject) => {
                assert!(
                    reject.reason == Reason::Revoked && known.may_be_dead(),
                    "a good token was refused: {:?}",
                    reject
                );
            }
        }
    }

    /// Everything is answered.
    fn finish(&mut self, process: &Process, calls: &mut Vec<Call<'_>>) {
        self.runtime.block_on(process.gate.let_through(process.gate.waiting()));
        while !calls.is_empty() {
            let before = calls.len();
            self.look_at(calls, 0);
            if calls.len() == before {
                // It had not come to the store yet.
                self.runtime.block_on(process.gate.let_through(process.gate.waiting()));
                self.look_at(calls, 0);
            }
            assert!(calls.len() < before, "a response is missing");
        }
    }

    /// What was not let through never happens.
    fn crash(&mut self) {
        self.step += 1;
        for mark in &mut self.watermarks {
            mark.over.get_or_insert(self.step);
        }
    }

    /// Each login is dead for all purposes or alive for all.
    fn end(&mut self, process: &Process) {
        for place in 0..self.logins.len() {
            self.step += 1;
            let known = &self.logins[place];
            let eldest = known.all().next().expect("it started with one");
            for tokens in [eldest, known.newest()] {
                self.check_use(process, place, &tokens.access);
            }
            let lives = process.admit(&known.newest().access, self.now).is_ok();
            let presented = known.generations.len() - 1;
            let mut calls = vec![self.begin(process, Asked::Refresh { login: place, presented })];
            self.finish(process, &mut calls);
            let grew = self.logins[place].generations.len() == presented + 2;
            assert_eq!(grew, lives, "a login is half dead");
        }
    }
}
