//! Limits of the connections of the admin API, and the choice of the one that gives way to a new one.
//!
//! A probe must get through while other programs of its machine hold idle connections: otherwise one local user makes
//! an orchestrator restart the gateway. So a new connection that finds no room replaces an idle one. No client without
//! the admin token can keep a connection busy: only its handler counts, and the body of a call is read after its token.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::settings::AdminSettings;
use crate::limits::network::{LEVELS, networks};
use crate::limits::per_address::{AddressGuard, PerAddressLimit};
use crate::telemetry::metrics::WorkerMetrics;

/// `admin.connections` and `admin.connections_per_address`. The Unix socket has slots of its own, so that clients of
/// the address cannot lock out the command line.
pub struct AdminConnections {
    local: Arc<Semaphore>,
    remote: Arc<Semaphore>,
    per_address: Arc<PerAddressLimit>,
    open: Arc<Open>,
    counters: Arc<WorkerMetrics>,
}

/// The connections to the address, by number: the longest idle one has the lowest number.
#[derive(Default)]
struct Open {
    connections: Mutex<BTreeMap<u64, Connection>>,
    next: AtomicU64,
}

struct Connection {
    address: IpAddr,
    is_idle: bool,
    must_close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
    _guard: AddressGuard,
}

/// A connection to the Unix socket, or to the address. Frees its slot when it is dropped.
pub(super) enum Slot {
    Local { _permit: OwnedSemaphorePermit },
    Remote(RemoteSlot),
}

pub(super) struct RemoteSlot {
    open: Arc<Open>,
    /// Changes with each call, so that connections are in the order of their last use.
    number: AtomicU64,
    must_close: Arc<Notify>,
}

impl AdminConnections {
    pub fn new(settings: &AdminSettings, counters: Arc<WorkerMetrics>) -> Self {
        let slots = || Arc::new(Semaphore::new(settings.connections));
        let per_address = Arc::new(PerAddressLimit::new(settings.connections_per_address));
        AdminConnections { local: slots(), remote: slots(), per_address, open: Arc::default(), counters }
    }

    /// A slot for a client of the Unix socket.
    pub(super) fn local(&self) -> Option<Slot> {
        match self.local.clone().try_acquire_owned() {
            Ok(_permit) => Some(Slot::Local { _permit }),
            Err(_) => {
                self.counters.connections_rejected.inc();
                None
            }
        }
    }

    /// A slot for a client of the address. If there is none, the longest idle connection is closed: of this client if
    /// it has too many, or else of the client that has the most.
    pub(super) fn remote(&self, client: IpAddr) -> Option<Slot> {
        let mut guard = self.per_address.acquire(client);
        if guard.is_none() && self.replace(|open| open.longest_idle_near(client)) {
            guard = self.per_address.acquire(client);
        }
        let Some(guard) = guard else {
            self.counters.address_connections_rejected.inc();
            return None;
        };
        let mut permit = self.remote.clone().try_acquire_owned().ok();
        if permit.is_none() && self.replace(Open::longest_idle_of_fullest) {
            permit = self.remote.clone().try_acquire_owned().ok();
        }
        let Some(permit) = permit else {
            self.counters.connections_rejected.inc();
            return None;
        };
        Some(Slot::Remote(self.open.enter(client, permit, guard)))
    }

    /// Frees the slot of one connection at once, and has it closed. Returns false if `find` finds none.
    fn replace(&self, find: impl Fn(&Open) -> Option<u64>) -> bool {
        let Some(closed) = find(&self.open).and_then(|number| self.open.connections.lock().remove(&number)) else {
            return false;
        };
        closed.must_close.notify_one();
        self.counters.idle_connections_closed.inc();
        true
    }
}

impl Open {
    fn enter(self: &Arc<Self>, address: IpAddr, permit: OwnedSemaphorePermit, guard: AddressGuard) -> RemoteSlot {
        let number = self.next_number();
        let must_close = Arc::new(Notify::new());
        let connection =
            Connection { address, is_idle: true, must_close: must_close.clone(), _permit: permit, _guard: guard };
        self.connections.lock().insert(number, connection);
        RemoteSlot { open: self.clone(), number: AtomicU64::new(number), must_close }
    }

    /// The longest idle connection of the smallest network of this client that has one.
    fn longest_idle_near(&self, client: IpAddr) -> Option<u64> {
        let connections = self.connections.lock();
        let idle = || connections.iter().filter(|(_, open)| open.is_idle);
        let is_in = |address: IpAddr, level: usize| {
            let key = |address| networks(address).find(|network| network.level == level).map(|network| network.key);
            key(client).is_some() && key(address) == key(client)
        };
        (0..LEVELS).find_map(|level| idle().find(|(_, open)| is_in(open.address, level)).map(|(number, _)| *number))
    }

    /// The longest idle connection of the address that has the most connections.
    fn longest_idle_of_fullest(&self) -> Option<u64> {
        let connections = self.connections.lock();
        let smallest = |address| networks(address).next().map(|network| network.key);
        let mut counts = HashMap::new();
        for open in connections.values() {
            *counts.entry(smallest(open.address)).or_insert(0_usize) += 1;
        }
        let idle = connections.iter().filter(|(_, open)| open.is_idle);
        let count = |open: &Connection| counts.get(&smallest(open.address)).copied().unwrap_or_default();
        // `max_by_key` returns the last one of several: so the others are compared from behind.
        idle.rev().max_by_key(|(_, open)| count(open)).map(|(number, _)| *number)
    }

    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Slot {
    /// Returns when the connection has to make room for another one.
    pub(super) async fn must_close(&self) {
        match self {
            Slot::Local { .. } => std::future::pending().await,
            Slot::Remote(slot) => slot.must_close.notified().await,
        }
    }

    /// The connection is busy until the result is dropped.
    pub(super) fn begin_call(&self) -> Call<'_> {
        self.set_idle(false);
        Call(self)
    }

    fn set_idle(&self, is_idle: bool) {
        let Slot::Remote(slot) = self else { return };
        let mut connections = slot.open.connections.lock();
        // It may have been closed meanwhile.
        let Some(connection) = connections.remove(&slot.number.load(Ordering::Relaxed)) else { return };
        let number = slot.open.next_number();
        connections.insert(number, Connection { is_idle, ..connection });
        slot.number.store(number, Ordering::Relaxed);
    }
}

pub(super) struct Call<'s>(&'s Slot);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.set_idle(true);
    }
}

impl Drop for RemoteSlot {
    fn drop(&mut self) {
        self.open.connections.lock().remove(&self.number.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(total: usize, per_address: usize) -> AdminConnections {
        AdminConnections {
            local: Arc::new(Semaphore::new(total)),
            remote: Arc::new(Semaphore::new(total)),
            per_address: Arc::new(PerAddressLimit::new(per_address)),
            open: Arc::default(),
            counters: Arc::default(),
        }
    }

    async fn is_closed(slot: &Slot) -> bool {
        tokio::time::timeout(std::time::Duration::ZERO, slot.must_close()).await.is_ok()
    }

    #[tokio::test]
    async fn a_client_with_too_many_replaces_its_longest_idle_one() {
        let connections = limited(9, 2);
        let open = |text: &str| connections.remote(text.parse().expect("an address"));
        let other = open("192.0.2.9").expect("room");
        let [first, second] = [(); 2].map(|()| open("192.0.2.1").expect("room"));
        drop(first.begin_call());
        let third = open("192.0.2.1").expect("one was idle");
        assert!(is_closed(&second).await && !is_closed(&first).await && !is_closed(&other).await);
        let _busy = first.begin_call();
        let _also_busy = third.begin_call();
        assert!(open("192.0.2.1").is_none(), "its calls are not closed");
        drop(second);
        assert!(open("192.0.2.1").is_none(), "a closed connection is not freed twice");
        let [one, two] = ["2001:db8::1", "2001:db8::2"].map(|address| open(address).expect("room"));
        assert!(open("2001:db8::3").is_some() && is_closed(&one).await && !is_closed(&two).await, "one /64");
    }

    #[tokio::test]
    async fn a_new_client_replaces_one_of_the_client_with_the_most() {
        let connections = limited(4, 0);
        let open = |last| connections.remote([192, 0, 2, last].into());
        let single = open(1).expect("room");
        let greedy = [(); 3].map(|()| open(66).expect("room"));
        let new = open(2).expect("one was idle");
        assert!(is_closed(&greedy[0]).await && !is_closed(&greedy[1]).await && !is_closed(&single).await);
        let _busy: Vec<_> = greedy.iter().chain([&single, &new]).map(Slot::begin_call).collect();
        assert!(open(3).is_none(), "all are busy");
    }
}
