//! Orders certificates when they are due. Of several gateways on one store, one does so at a time.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{Account, RetryPolicy};
use tokio::time::{Instant, interval, sleep};

use super::account;
use super::authority::Authority;
use super::entries::{Entries, Wanted};
use super::failure::Failure;
use super::order::{Task, random};
use super::renewal_info;
use crate::store::StoreError;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::clock::{Clock, UnixTime};
use crate::types::limit::Limit;

/// Another gateway orders: how long until the next look.
const OTHERS_TURN: Duration = Duration::from_secs(5);
/// How often the lease is renewed. It lasts for 15 s.
const LEASE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the store is looked through for entries that can be deleted.
const TIDY_INTERVAL: Duration = Duration::from_hours(1);

/// How long the authority may take for a validation, and for a certificate.
const LONGEST_POLL: Duration = Duration::from_secs(60);

/// How often an order goes on after the authority has rejected three nonces in a row. Behind a load balancer without
/// shared nonces, it can reject each second one.
const MAX_BAD_NONCES: u32 = 3;

const LEASE: &str = "acme";

/// What orders need.
pub struct Worker {
    pub entries: Arc<Entries>,
    pub clock: Arc<dyn Clock>,
    /// Of the thread that orders.
    pub metrics: Arc<WorkerMetrics>,
}

/// Works until it is dropped.
pub async fn work(worker: Worker) {
    let mut wanted = worker.entries.wanted.subscribe();
    let mut state =
        WorkState { authority: None, account: None, tidied: Instant::now(), repeats: false, is_limited: false };
    loop {
        let now_wanted = wanted.borrow_and_update().clone();
        if state.authority.as_ref().is_some_and(|authority| authority.settings != now_wanted.settings) {
            (state.authority, state.account) = (None, None);
        }
        state.repeats |= worker.entries.take_repeats();
        let pause = worker.turn(&now_wanted, &mut state).await;
        tokio::select! {
            () = sleep(pause) => {}
            changed = wanted.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

struct WorkState {
    authority: Option<Authority>,
    /// The account that was used last.
    account: Option<Account>,
    tidied: Instant,
    /// Failed orders are repeated now.
    repeats: bool,
    /// `acme.orders_per_hour` is reached, and was reported.
    is_limited: bool,
}

impl Worker {
    /// Does what is due. Returns the pause until the next turn.
    async fn turn(&self, wanted: &Wanted, state: &mut WorkState) -> Duration {
        let directory = wanted.settings.directory.text();
        let due: Vec<&String> =
            wanted.names.iter().filter(|name| self.is_due(name, &directory, state.repeats)).collect();
        let accounts = self.entries.accounts_sealed_before();
        if due.is_empty() && accounts.is_empty() {
            state.repeats = false;
            self.tidy(state).await;
            return wanted.settings.pace.turns;
        }
        if !self.holds_lease().await.unwrap_or(false) {
            return OTHERS_TURN;
        }
        // Another gateway may have done it meanwhile.
        if self.entries.read().await.is_err() {
            return OTHERS_TURN;
        }
        if !self.seal_again(&accounts).await {
            return OTHERS_TURN;
        }
        let repeats = std::mem::take(&mut state.repeats);
        for name in due.into_iter().filter(|name| self.is_due(name, &directory, repeats)) {
            let worked = tokio::select! {
                worked = self.work_on(name, wanted, state, repeats) => worked,
                // Another gateway goes on: the lease could not be renewed in time.
                () = self.lost_lease() => return OTHERS_TURN,
            };
            if let Err(Failure::Store(error)) = worked {
                tracing::warn!(name, %error, "cannot work on the ACME certificate: the store failed");
                return OTHERS_TURN;
            }
        }
        if state.is_limited { OTHERS_TURN } else { wanted.settings.pace.turns }
    }

    /// Returns false if the store failed.
    async fn seal_again(&self, accounts: &[String]) -> bool {
        for directory in accounts {
            if let Err(Failure::Store(error)) = self.entries.seal_account_again(directory).await {
                tracing::warn!(directory, %error, "cannot encrypt the key of the ACME account again: the store failed");
                return false;
            }
        }
        true
    }

    fn is_due(&self, name: &str, directory: &str, repeats: bool) -> bool {
        let now = self.clock.now();
        let (_, state) = self.entries.state(name);
        state.order_at(directory) <= now
            || repeats && state.failures > 0
            || self.can_ask(name) && state.ask_at(directory).is_some_and(|at| at <= now)
            || self.entries.is_sealed_before(name)
    }

    /// Returns true if the authority can be asked when to renew the certificate.
    fn can_ask(&self, name: &str) -> bool {
        self.entries.issued(name).is_some_and(|issued| issued.id.is_some())
    }

    async fn holds_lease(&self) -> Result<bool, StoreError> {
        self.entries.within_patience(self.entries.store.hold_lease(LEASE.to_owned())).await
    }

    async fn lost_lease(&self) {
        let mut due = interval(LEASE_INTERVAL);
        due.tick().await;
        loop {
            due.tick().await;
            if let Ok(false) = self.holds_lease().await {
                return;
            }
        }
    }

    async fn work_on(&self, name: &str, wanted: &Wanted, work: &mut WorkState, repeats: bool) -> Result<(), Failure> {
        let (version, mut state) = self.entries.state(name);
        if repeats {
            state.retry_at = 0;
        }
        let directory = wanted.settings.directory.text();
        let poll = RetryPolicy::new().initial_delay(wanted.settings.pace.poll).timeout(LONGEST_POLL);
        let mut task = Task { entries: &self.entries, name, version, state, directory, poll };
        if self.entries.is_sealed_before(name) {
            task.save().await?;
        }
        let now = self.clock.now();
        if self.can_ask(name) && task.state.ask_at(&task.directory).is_some_and(|at| at <= now) {
            self.ask(&mut task, wanted).await?;
        }
        if task.state.order_at(&task.directory) > now || !self.may_order(&task, wanted, work) {
            return Ok(());
        }
        tracing::info!(name, directory = task.directory, "ordering a certificate");
        match self.order(&mut task, wanted, work).await {
            Ok(()) => {
                self.entries.counts.count(true);
                let until = self.entries.issued(name).map(|issued| issued.not_after.to_string());
                tracing::info!(name, until, "the ACME server has issued a certificate");
                Ok(())
            }
            Err(failure) => self.failed(task, failure, work).await,
        }
    }

    /// Returns false if `acme.orders_per_hour` orders have begun. To go on with an order is no new one.
    fn may_order(&self, task: &Task<'_>, wanted: &Wanted, work: &mut WorkState) -> bool {
        let limit = wanted.settings.orders_per_hour;
        if task.state.order.is_some() || self.entries.begun_since_an_hour(self.clock.now()) < limit {
            work.is_limited = false;
            return true;
        }
        if !work.is_limited {
            tracing::warn!(name = task.name, limit, "acme.orders_per_hour is reached; the next order waits");
            self.metrics.limit_hit(Limit::AcmeOrders);
            work.is_limited = true;
        }
        false
    }

    async fn ask(&self, task: &mut Task<'_>, wanted: &Wanted) -> Result<(), Failure> {
        let Some(id) = self.entries.issued(task.name).and_then(|issued| issued.id.clone()) else { return Ok(()) };
        let answer = Box::pin(renewal_info::ask(&Authority::new(wanted.settings.clone()), &id)).await;
        if let Err(failure) = &answer {
            tracing::warn!(name = task.name, error = failure.text(), "no renewal information; asking again later");
        }
        let window = answer.ok().flatten();
        let now = self.clock.now();
        if let Some(certificate) = &mut task.state.certificate {
            certificate.use_window(window, now, random());
        }
        task.save().await
    }

    async fn order(&self, task: &mut Task<'_>, wanted: &Wanted, work: &mut WorkState) -> Result<(), Failure> {
        task.begin(self.clock.now()).await?;
        for _ in 0..MAX_BAD_NONCES {
            match self.proceed(task, wanted, work).await {
                Err(failure) if failure.is_bad_nonce() => {}
                proceeded => return proceeded,
            }
        }
        self.proceed(task, wanted, work).await
    }

    /// Goes on with an order from where it stands.
    async fn proceed(&self, task: &mut Task<'_>, wanted: &Wanted, work: &mut WorkState) -> Result<(), Failure> {
        let authority = work.authority.get_or_insert_with(|| Authority::new(wanted.settings.clone()));
        let account = match work.account.take() {
            Some(account) => account,
            None => account::open(&self.entries, authority).await?,
        };
        // After a failure, the next attempt opens the account again: the authority may have forgotten it.
        let Err(failure) = task.complete(&account, self.clock.now()).await else {
            work.account = Some(account);
            return Ok(());
        };
        let account = account::open_again(&account, failure, &self.entries, authority).await?;
        task.order_again();
        task.complete(&account, self.clock.now()).await?;
        work.account = Some(account);
        Ok(())
    }

    async fn failed(&self, mut task: Task<'_>, failure: Failure, work: &mut WorkState) -> Result<(), Failure> {
        let Some(kind) = failure.kind() else { return Err(failure) };
        self.entries.counts.count(false);
        let now = self.clock.now();
        let text = failure.text();
        if !failure.keeps_order() {
            task.state.order = None;
        } else if let Some(order) = &mut task.state.order {
            order.validation = None;
        }
        let retry_after = work.authority.as_ref().and_then(Authority::take_retry_after);
        task.state.fail(kind, text.clone(), retry_after, now, random());
        let next = UnixTime::from_secs(task.state.retry_at).to_string();
        let until = self.entries.issued(task.name).map(|issued| issued.not_after.to_string());
        let until = until.as_deref().unwrap_or("none");
        tracing::warn!(
            name = task.name,
            error = text,
            next,
            certificate_until = until,
            "no certificate from the ACME server; trying again"
        );
        task.save().await
    }

    async fn tidy(&self, work: &mut WorkState) {
        if work.tidied.elapsed() < TIDY_INTERVAL {
            return;
        }
        work.tidied = Instant::now();
        for (name, version) in self.entries.outdated(self.clock.now()) {
            if let Err(error) = self.entries.forget(name, version).await {
                return tracing::warn!(%error, "cannot delete an outdated entry of ACME");
            }
        }
    }
}
