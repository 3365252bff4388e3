//! A network namespace of Linux for one gateway, with two cables: one to its clients, one to its database. Only root
//! may create one.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use super::fault_proxy::FaultProxy;

pub(super) struct Network {
    name: String,
    /// The address of the gateway for its clients.
    pub(super) own: Ipv4Addr,
    /// The end of the cable to the clients at which they are.
    clients: Ipv4Addr,
    /// The end of the cable to the database at which the database is.
    pub(super) database: Ipv4Addr,
    /// To what the gateway reaches besides its database. They work as long as they are here.
    proxies: Vec<FaultProxy>,
}

impl Network {
    /// Fails if this process has not the rights to do this.
    pub(super) fn create() -> Network {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [.., high, low] = std::process::id().to_be_bytes();
        let name = format!("bw{}x{number}", std::process::id());
        // 198.18.0.0/15 is reserved for tests of networks (RFC 2544).
        let address = |host: u8| Ipv4Addr::new(198, 18 + (high & 1), low, (number % 16) * 16 + host);
        ip(&["netns", "add", &name]);
        for (cable, host) in [("c", 0), ("d", 4)] {
            let (near, far) = (format!("{name}{cable}"), format!("{cable}0"));
            ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &name]);
            ip(&["addr", "add", &format!("{}/30", address(host + 1)), "dev", &near]);
            ip(&["-n", &name, "addr", "add", &format!("{}/30", address(host + 2)), "dev", &far]);
            ip(&["link", "set", &near, "up"]);
            ip(&["-n", &name, "link", "set", &far, "up"]);
        }
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        Network { name, own: address(2), clients: address(1), database: address(5), proxies: Vec::new() }
    }

    /// What runs a command there.
    pub(super) fn command(&self) -> String {
        format!("ip netns exec {}", self.name)
    }

    /// An address at which the gateway reaches this one.
    pub(super) fn reach(&mut self, address: SocketAddr) -> SocketAddr {
        let proxy = FaultProxy::start_at(self.clients, address, false);
        let reached = proxy.address;
        self.proxies.push(proxy);
        reached
    }

    /// Packets between the gateway and its database get lost. Neither side sees a reset.
    pub(super) fn cut(&self) {
        ip(&["link", "set", &format!("{}d", self.name), "down"]);
    }

    pub(super) fn mend(&self) {
        ip(&["link", "set", &format!("{}d", self.name), "up"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The cables go with it.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

pub(super) fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip is there: tests/run installs iproute2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said} (tests/chaos must run as root)", arguments.join(" "));
}
