//! Options of the sockets of clients.

use tokio::net::TcpStream;

use crate::support::sockets::assert_kept_alive;
use crate::support::{Gateway, Upstream};

/// Nothing else ends an idle WebSocket of a client that lost its network.
#[tokio::test]
async fn the_kernel_looks_for_silent_clients() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for address in [gateway.address(), gateway.tls_address()] {
        assert_kept_alive(&TcpStream::connect(address).await.expect("the gateway listens")).await;
    }
}
