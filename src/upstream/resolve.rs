//! The addresses of a server. The control thread looks a name up in regular intervals; the last successful result is
//! kept.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one attempt may take before the next address is tried beside it (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

pub(super) struct Addresses {
    host: String,
    port: u16,
    /// Sorted. Empty until the first successful lookup.
    known: Mutex<Arc<[SocketAddr]>>,
    /// How often addresses have been removed.
    removals: AtomicU64,
    /// The number of connections so far: each begins with another address.
    attempts: AtomicUsize,
}

impl Addresses {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let fixed: Option<IpAddr> = host.parse().ok();
        let known = fixed.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        let removals = AtomicU64::new(0);
        let attempts = AtomicUsize::new(0);
        Addresses { host: host.to_owned(), port, known: Mutex::new(known), removals, attempts }
    }

    /// Returns true if the host is an address and needs no lookup.
    pub(super) fn is_literal(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }

    pub(super) fn known(&self) -> Arc<[SocketAddr]> {
        self.known.lock().clone()
    }

    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Replaces the addresses. Returns true if they changed. An empty list changes nothing.
    pub(super) fn update(&self, mut found: Vec<SocketAddr>) -> bool {
        found.sort();
        found.dedup();
        let mut known = self.known.lock();
        if found.is_empty() || **known == *found {
            return false;
        }
        let has_removed = known.iter().any(|address| !found.contains(address));
        *known = found.into();
        if has_removed {
            self.removals.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Looks the name up with the system's resolver. It blocks, so tokio runs it on another thread.
    pub(super) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect();
        if found.is_empty() {
            Err(io::Error::new(io::ErrorKind::NotFound, "no address found for this name"))
        } else {
            Ok(found)
        }
    }

    /// Connects to the first address that accepts. Each call begins with another address.
    pub(super) async fn connect(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut known = self.known();
        if known.is_empty() {
            // Only before the first successful lookup.
            self.update(self.resolve().await?);
            known = self.known();
        }
        match *known {
            [only] => Ok((TcpStream::connect(only).await?, only)),
            _ => connect_to_any(order(&known, self.attempts.fetch_add(1, Ordering::Relaxed))).await,
        }
    }
}

/// The order in which the addresses are tried. Each attempt begins with another one. IPv6 and IPv4 alternate (RFC 8305
/// section 4), so that the second try succeeds if one of the two has no route.
fn order(known: &[SocketAddr], attempt: usize) -> Vec<SocketAddr> {
    let (mut sixes, mut fours): (Vec<_>, Vec<_>) = known.iter().copied().partition(SocketAddr::is_ipv6);
    // With both families, each begins every second attempt.
    let rotation = if sixes.is_empty() || fours.is_empty() { attempt } else { attempt / 2 };
    for family in [&mut sixes, &mut fours] {
        let len = family.len().max(1);
        family.rotate_left(rotation % len);
    }
    let (first, second) = if attempt.is_multiple_of(2) && !sixes.is_empty() { (sixes, fours) } else { (fours, sixes) };
    let mut ordered = Vec::with_capacity(known.len());
    for at in 0..first.len().max(second.len()) {
        ordered.extend(first.get(at));
        ordered.extend(second.get(at));
    }
    ordered
}

/// Tries the addresses in order. The next one is tried as soon as one fails or takes long.
async fn connect_to_any(addresses: Vec<SocketAddr>) -> io::Result<(TcpStream, SocketAddr)> {
    // Dropping it cancels the attempts that are still running.
    let mut attempts = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address to connect to");
    let mut addresses = addresses.into_iter();
    while let Some(address) = addresses.next() {
        attempts.spawn(async move { Ok::<_, io::Error>((TcpStream::connect(address).await?, address)) });
        // After the last address, wait for all attempts.
        let delay = if addresses.len() > 0 { ATTEMPT_DELAY } else { Duration::MAX };
        while let Ok(Some(attempt)) = timeout(delay, attempts.join_next()).await {
            match attempt {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => last = error,
                Err(_panicked) => {}
            }
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_attempt_begins_elsewhere_and_families_alternate() {
        let known = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"].map(at);
        let mut firsts = Vec::new();
        for attempt in 0..12 {
            let ordered = order(&known, attempt);
            let mut sorted = ordered.clone();
            sorted.sort();
            let mut all = known.to_vec();
            all.sort();
            assert_eq!(sorted, all, "each once");
            assert_ne!(ordered[0].is_ipv6(), ordered[1].is_ipv6());
            assert_ne!(ordered[1].is_ipv6(), ordered[2].is_ipv6());
            firsts.push(ordered[0]);
        }
        assert!(known.iter().filter(|address| address.is_ipv4()).all(|address| firsts.contains(address)), "{firsts:?}");
        assert!(order(&[], 3).is_empty());
    }

    #[test]
    fn the_last_lookup_is_kept_and_a_removal_is_noticed() {
        let addresses = Addresses::new("backend.test", 80);
        assert!(!addresses.is_literal() && addresses.known().is_empty());
        assert!(addresses.update(vec![at("10.0.0.2:80"), at("10.0.0.1:80")]));
        assert_eq!(addresses.removals(), 0, "no address was removed");
        assert!(!addresses.update(vec![at("10.0.0.1:80"), at("10.0.0.2:80")]), "the same in another order");
        assert!(!addresses.update(Vec::new()), "an empty result changes nothing");
        assert_eq!(addresses.known().len(), 2);
        assert!(addresses.update(vec![at("10.0.0.2:80"), at("10.0.0.3:80")]));
        assert_eq!(addresses.removals(), 1);
        assert!(Addresses::new("::1", 80).is_literal() && Addresses::new("127.0.0.1", 80).is_literal());
    }

    #[tokio::test]
    async fn an_address_without_a_listener_is_skipped() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let open = listener.local_addr().expect("an address");
        // It stays bound, and does not listen.
        let unused = tokio::net::TcpSocket::new_v4().expect("a socket");
        unused.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let closed = unused.local_addr().expect("an address");
        let (_stream, address) = connect_to_any(vec![closed, open]).await.expect("one listens");
        assert_eq!(address, open);
        assert!(
            connect_to_any(vec![closed]).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        );
        assert!(connect_to_any(Vec::new()).await.is_err());
    }
}
