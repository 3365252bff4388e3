//! Graceful shutdown: accepted requests are served, new connections are rejected, and the drain ends in time.

mod accepted;
mod idle;
mod requests;

use std::net::SocketAddr;
use std::thread::JoinHandle;

use http::Request;
use tokio::net::TcpStream;

use crate::support::connection;
use crate::support::wait::{eventually, eventually_ok};

/// Waits for the drain without blocking this thread, because the test's clients run on it.
async fn wait_for_drain(draining: JoinHandle<()>) {
    eventually("the drain ends", || draining.is_finished()).await;
    draining.join().expect("no panic");
}

async fn wait_until_closed(address: SocketAddr) {
    eventually_ok("the gateway stops listening", async || match TcpStream::connect(address).await {
        Ok(_) => Err(format!("{address} still accepts connections")),
        Err(_) => Ok(()),
    })
    .await;
}

fn request(path: &str) -> Request<connection::Body> {
    Request::get(path).body(connection::empty()).expect("a request")
}
