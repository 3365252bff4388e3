//! The addresses of a server. A name is looked up again and again on the control thread; the last good answer is kept.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// RFC 8305 section 5: so long one attempt is alone before the next address is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

pub(super) struct Addresses {
    host: String,
    port: u16,
    /// In no order. Empty until the first answer.
    known: Mutex<Arc<[SocketAddr]>>,
    /// Moves when an address has vanished.
    generation: AtomicU64,
    turn: AtomicUsize,
}

impl Addresses {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let fixed: Option<IpAddr> = host.parse().ok();
        let known = fixed.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        let (generation, turn) = (AtomicU64::new(0), AtomicUsize::new(0));
        Addresses { host: host.to_owned(), port, known: Mutex::new(known), generation, turn }
    }

    /// An address, and not a name.
    pub(super) fn are_fixed(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }

    pub(super) fn known(&self) -> Arc<[SocketAddr]> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// These are its addresses now. Answers whether they are others than before. None at all is no answer.
    pub(super) fn follow(&self, mut found: Vec<SocketAddr>) -> bool {
        found.sort();
        found.dedup();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_empty() || **known == *found {
            return false;
        }
        let has_lost = known.iter().any(|address| !found.contains(address));
        *known = found.into();
        if has_lost {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Asks the system's resolver, which may take its time: it has a thread of its own for that.
    pub(super) async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect();
        match found.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
            false => Ok(found),
        }
    }

    /// A connection to the first address that answers, begun at another address each time.
    pub(super) async fn connect(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut known = self.known();
        if known.is_empty() {
            // Only before the first answer.
            self.follow(self.look_up().await?);
            known = self.known();
        }
        match *known {
            [only] => Ok((TcpStream::connect(only).await?, only)),
            _ => connect_to_one_of(order(&known, self.turn.fetch_add(1, Ordering::Relaxed))).await,
        }
    }
}

/// Each address once; every turn begins with another one, and IPv6 and IPv4 alternate (RFC 8305 section 4), so that where one
/// of them leads nowhere, the second attempt already leads elsewhere.
fn order(known: &[SocketAddr], turn: usize) -> Vec<SocketAddr> {
    let (mut sixes, mut fours): (Vec<_>, Vec<_>) = known.iter().copied().partition(SocketAddr::is_ipv6);
    // Where families take turns, each has its own.
    let own_turn = if sixes.is_empty() || fours.is_empty() { turn } else { turn / 2 };
    for family in [&mut sixes, &mut fours] {
        let len = family.len().max(1);
        family.rotate_left(own_turn % len);
    }
    let (first, second) = if turn.is_multiple_of(2) && !sixes.is_empty() { (sixes, fours) } else { (fours, sixes) };
    let mut ordered = Vec::with_capacity(known.len());
    for at in 0..first.len().max(second.len()) {
        ordered.extend(first.get(at));
        ordered.extend(second.get(at));
    }
    ordered
}

/// Tries one after the other, and the next one beside those that take long.
async fn connect_to_one_of(addresses: Vec<SocketAddr>) -> io::Result<(TcpStream, SocketAddr)> {
    // Ends what is still under way when it is dropped.
    let mut attempts = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no address");
    let mut addresses = addresses.into_iter();
    while let Some(address) = addresses.next() {
        attempts.spawn(async move { Ok::<_, io::Error>((TcpStream::connect(address).await?, address)) });
        // Behind the last one comes nobody.
        let alone = if addresses.len() > 0 { STAGGER } else { Duration::MAX };
        while let Ok(Some(attempt)) = timeout(alone, attempts.join_next()).await {
            match attempt {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => last = error,
                Err(_ended) => {}
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
    fn every_address_comes_first_in_its_turn_and_families_alternate() {
        let known = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"].map(at);
        let mut firsts = Vec::new();
        for turn in 0..12 {
            let ordered = order(&known, turn);
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
    fn the_last_good_answer_is_kept_and_a_vanished_address_is_noticed() {
        let addresses = Addresses::new("backend.test", 80);
        assert!(!addresses.are_fixed() && addresses.known().is_empty());
        assert!(addresses.follow(vec![at("10.0.0.2:80"), at("10.0.0.1:80")]));
        assert_eq!(addresses.generation(), 0, "nothing has vanished");
        assert!(!addresses.follow(vec![at("10.0.0.1:80"), at("10.0.0.2:80")]), "the same in another order");
        assert!(!addresses.follow(Vec::new()), "no answer is none");
        assert_eq!(addresses.known().len(), 2);
        assert!(addresses.follow(vec![at("10.0.0.2:80"), at("10.0.0.3:80")]));
        assert_eq!(addresses.generation(), 1);
        assert!(Addresses::new("::1", 80).are_fixed() && Addresses::new("127.0.0.1", 80).are_fixed());
    }

    #[tokio::test]
    async fn an_address_where_nobody_listens_costs_nothing_but_a_moment() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("an address");
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let (_stream, address) = connect_to_one_of(vec![nobody, here]).await.expect("one listens");
        assert_eq!(address, here);
        assert!(
            connect_to_one_of(vec![nobody]).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        );
        assert!(connect_to_one_of(Vec::new()).await.is_err());
    }
}
