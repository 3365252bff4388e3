//! One random order of operations on a process, with checks after each step.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bearward::broker::TokenPair;
use bearward::types::clock::UnixTime;
use bearward::types::reject::{Reason, Reject};
use futures_util::task::noop_waker;
use tokio::runtime::Runtime;

use super::model::{LoginModel, Step, Tokens, Watermark};
use super::process::Process;
use super::{MAX_CALLS, Random, STEPS};
use crate::support::given::AFTER_GRACE;

/// An operation of a client or an operator. `login` is an index into [`Order::logins`].
enum Operation {
    Issue,
    Capture,
    Refresh { login: usize, presented: usize },
    Revoke { login: usize },
    RevokeAll { watermark: usize },
    Confirm,
}

enum Outcome {
    Tokens(Result<TokenPair, Reject>),
    Done(Result<(), Reject>),
}

/// An operation in flight.
struct Call<'p> {
    operation: Operation,
    started: Step,
    future: Pin<Box<dyn Future<Output = Outcome> + 'p>>,
}

/// One random order of operations, and what it must lead to.
pub(super) struct Order<'r> {
    runtime: &'r Runtime,
    pub(super) random: Random,
    subject: String,
    now: UnixTime,
    step: Step,
    logins: Vec<LoginModel>,
    /// The step at which each login began. A later mass revocation covers it.
    begun: Vec<Step>,
    watermarks: Vec<Watermark>,
}

impl<'r> Order<'r> {
    pub(super) fn new(seed: u64, now: UnixTime, runtime: &'r Runtime) -> Self {
        Order {
            runtime,
            random: Random(seed),
            subject: format!("subject-{seed}"),
            now,
            step: 0,
            logins: Vec::new(),
            begun: Vec::new(),
            watermarks: Vec::new(),
        }
    }

    pub(super) fn first_login(&mut self, process: &Process) {
        let mut calls = vec![self.begin(process, Operation::Issue)];
        self.finish(process, &mut calls);
    }

    /// Runs random steps until `until`.
    pub(super) fn run_until(&mut self, process: &Process, until: Step) {
        let mut calls = Vec::new();
        while self.step < until {
            self.step += 1;
            match self.random.below(20) {
                0..8 if calls.len() < MAX_CALLS => {
                    let operation = self.random_operation();
                    calls.push(self.begin(process, operation));
                }
                0..12 => self.release_some(process),
                12..16 if !calls.is_empty() => {
                    let index = self.random.below(calls.len());
                    self.poll_call(&mut calls, index);
                }
                // The client disconnects. Its operation may or may not take effect.
                16 if !calls.is_empty() => drop(calls.remove(self.random.below(calls.len()))),
                17 => self.now = self.now + [Duration::from_millis(300), AFTER_GRACE][self.random.below(2)],
                _ => self.use_random_token(process),
            }
        }
        // A crash follows the first half, so its calls stay in flight.
        if until == STEPS {
            self.finish(process, &mut calls);
        }
    }

    fn random_operation(&mut self) -> Operation {
        let login = self.random.below(self.logins.len());
        let newest = self.logins[login].generations.len() - 1;
        match self.random.below(16) {
            0..6 => Operation::Refresh { login, presented: newest },
            6..8 => Operation::Refresh { login, presented: self.random.below(newest + 1) },
            8..10 => Operation::Revoke { login },
            10 => Operation::Issue,
            11 => Operation::Capture,
            12 => Operation::Confirm,
            _ => {
                self.watermarks.push(Watermark { started: self.step, completed: None });
                Operation::RevokeAll { watermark: self.watermarks.len() - 1 }
            }
        }
    }

    fn begin<'p>(&mut self, process: &'p Process, operation: Operation) -> Call<'p> {
        // As long as it takes at least from one operation to the next that knows of it.
        self.now = self.now + Duration::from_millis(1);
        let now = self.now;
        let future: Pin<Box<dyn Future<Output = Outcome> + 'p>> = match &operation {
            Operation::Issue => {
                let subject = self.subject.clone();
                Box::pin(async move { Outcome::Tokens(process.issue(&subject, now).await) })
            }
            Operation::Capture => {
                let subject = self.subject.clone();
                Box::pin(async move { Outcome::Tokens(process.capture(&subject, now).await) })
            }
            Operation::Refresh { login, presented } => {
                let known = &mut self.logins[*login];
                known.open_refreshes.push(*presented);
                let (bearer, token) = (known.newest().access.clone(), &known.generations[*presented][0]);
                let token = token.refresh.clone();
                Box::pin(async move { Outcome::Tokens(process.refresh(&bearer, &token, now).await) })
            }
            Operation::Revoke { login } => {
                let by_operator = self.random.one_in(3);
                let known = &mut self.logins[*login];
                known.may_be_revoked = true;
                let (bearer, id) = (known.newest().access.clone(), known.id);
                Box::pin(async move {
                    Outcome::Done(if by_operator {
                        process.revoke(id, now).await
                    } else {
                        process.log_out(&bearer, id, now).await
                    })
                })
            }
            Operation::RevokeAll { .. } => {
                self.logins.iter_mut().for_each(|known| known.may_be_revoked = true);
                let subject = (!self.random.one_in(3)).then(|| self.subject.clone());
                Box::pin(async move { Outcome::Done(process.revoke_all(subject, now).await) })
            }
            Operation::Confirm => Box::pin(async move { Outcome::Done(process.write_confirmations().await) }),
        };
        let mut call = Call { operation, started: self.step, future };
        // Runs the call up to its first request to the store.
        if let Poll::Ready(outcome) = self.poll(&mut call) {
            call.future = Box::pin(std::future::ready(outcome));
        }
        call
    }

    fn poll(&self, call: &mut Call<'_>) -> Poll<Outcome> {
        let _time = self.runtime.enter();
        call.future.as_mut().poll(&mut Context::from_waker(&noop_waker()))
    }

    fn release_some(&mut self, process: &Process) {
        let waiting = process.gate.waiting();
        if waiting > 0 {
            let count = 1 + self.random.below(waiting);
            self.runtime.block_on(process.gate.release(count));
        }
    }

    /// Checks the outcome of a call, if it has completed.
    fn poll_call(&mut self, calls: &mut Vec<Call<'_>>, index: usize) {
        if let Poll::Ready(outcome) = self.poll(&mut calls[index]) {
            let call = calls.remove(index);
            self.step += 1;
            self.check(&call.operation, call.started, outcome);
        }
    }

    fn check(&mut self, operation: &Operation, started: Step, outcome: Outcome) {
        let now = self.step;
        match (operation, outcome) {
            (Operation::Issue | Operation::Capture, Outcome::Tokens(Ok(pair))) => {
                let mut known = LoginModel::new(&pair);
                known.may_be_revoked = self.overlaps_mass_revocation(started);
                // A mass revocation covers logins in flight too.
                if self.watermarks.iter().any(|mark| mark.started > started && mark.completed.is_some()) {
                    known.mark_revoked(now);
                }
                self.logins.push(known);
                self.begun.push(started);
            }
            (Operation::Issue | Operation::Capture, Outcome::Tokens(Err(reject))) => {
                let is_overtaken = self.overlaps_mass_revocation(started);
                assert!(reject.reason == Reason::LoginCapture && is_overtaken, "{reject:?}");
            }
            (Operation::Refresh { login, presented }, Outcome::Tokens(response)) => {
                self.logins[*login].refreshed(*presented, started, now, response);
            }
            (Operation::Revoke { login }, Outcome::Done(Ok(()))) => self.logins[*login].mark_revoked(now),
            // The Bearer of a logout can be revoked already.
            (Operation::Revoke { login }, Outcome::Done(Err(reject))) => {
                assert!(
                    reject.reason == Reason::Revoked && self.logins[*login].can_be_revoked(),
                    "{:?}",
                    reject.reason
                );
            }
            (Operation::RevokeAll { watermark }, Outcome::Done(Ok(()))) => {
                self.watermarks[*watermark].completed = Some(now);
                for (known, begun) in self.logins.iter_mut().zip(&self.begun) {
                    if *begun < started {
                        known.mark_revoked(now);
                    }
                }
            }
            (Operation::Confirm, Outcome::Done(Ok(()))) => {}
            (_, Outcome::Tokens(Err(reject)) | Outcome::Done(Err(reject))) => {
                panic!("{:?}: {}", reject.reason, reject.detail)
            }
            _ => panic!("an outcome of another operation"),
        }
    }

    /// Returns true if a mass revocation was in flight at `started` or later.
    fn overlaps_mass_revocation(&self, started: Step) -> bool {
        self.watermarks.iter().any(|mark| mark.completed.is_none_or(|completed| completed >= started))
    }

    /// Sends a request with a random token.
    fn use_random_token(&mut self, process: &Process) {
        let index = self.random.below(self.logins.len());
        let tokens: Vec<&Tokens> = self.logins[index].all().collect();
        let token = tokens[self.random.below(tokens.len())].access.clone();
        self.check_use(process, index, &token);
    }

    fn check_use(&self, process: &Process, index: usize, access: &str) {
        let known = &self.logins[index];
        match process.admit(access, self.now) {
            Ok(_) => assert!(known.revoked_since.is_none(), "a token of a revoked session was accepted"),
            Err(reject) => {
                assert!(
                    reject.reason == Reason::Revoked && known.can_be_revoked(),
                    "a valid token was rejected: {:?}",
                    reject
                );
            }
        }
    }

    /// Completes all calls.
    fn finish(&mut self, process: &Process, calls: &mut Vec<Call<'_>>) {
        self.runtime.block_on(process.gate.release(process.gate.waiting()));
        while !calls.is_empty() {
            let before = calls.len();
            self.poll_call(calls, 0);
            if calls.len() == before {
                // It had not reached the store yet.
                self.runtime.block_on(process.gate.release(process.gate.waiting()));
                self.poll_call(calls, 0);
            }
            assert!(calls.len() < before, "a call does not complete");
        }
    }

    /// Records that calls in flight cannot take effect any more.
    pub(super) fn crash(&mut self) {
        self.step += 1;
        for mark in &mut self.watermarks {
            mark.completed.get_or_insert(self.step);
        }
    }

    /// Asserts that each session is either revoked for all requests or for none.
    pub(super) fn check_all(&mut self, process: &Process) {
        for index in 0..self.logins.len() {
            self.step += 1;
            let known = &self.logins[index];
            let oldest = known.all().next().expect("there is at least one");
            for tokens in [oldest, known.newest()] {
                self.check_use(process, index, &tokens.access);
            }
            let is_live = process.admit(&known.newest().access, self.now).is_ok();
            let presented = known.generations.len() - 1;
            let mut calls = vec![self.begin(process, Operation::Refresh { login: index, presented })];
            self.finish(process, &mut calls);
            let refreshed = self.logins[index].generations.len() == presented + 2;
            assert_eq!(refreshed, is_live, "a session is revoked for some requests only");
        }
    }
}
