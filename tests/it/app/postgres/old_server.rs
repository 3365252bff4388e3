//! A server that is too old. Debian has none, so a proxy changes the version that a real one reports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use super::{folder, start_error, text};
use crate::support::Upstream;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;

/// Replaces bytes in all responses of the server. Returns its port.
fn proxy(server: &PostgresServer, replace: Vec<(Vec<u8>, Vec<u8>)>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (port, target) = (listener.local_addr().expect("bound").port(), server.port);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
            let (requests, responses) = (client.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
            thread::spawn(move || pass(requests, server, &[]));
            let replace = replace.clone();
            thread::spawn(move || pass(responses, client, &replace));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, replace: &[(Vec<u8>, Vec<u8>)]) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        for (old, new) in replace {
            let places: Vec<usize> = (0..count).filter(|at| buffer[*at..count].starts_with(old)).collect();
            places.iter().for_each(|at| buffer[*at..*at + old.len()].copy_from_slice(new));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[tokio::test]
async fn a_server_before_version_14_is_rejected() {
    let (upstream, server) = (Upstream::start(), PostgresServer::shared());
    let number: i32 = server.sql("postgres", "show server_version_num").parse().expect("a number");
    let version = server.sql("postgres", "show server_version");
    let old = format!("{:.<width$}", "13.9", width = version.len());
    let versions = vec![
        (number.to_be_bytes().to_vec(), 130_009_i32.to_be_bytes().to_vec()),
        (version.into_bytes(), old.clone().into_bytes()),
    ];
    let keys = |port: u16| {
        let url = format!("postgres://bearward@127.0.0.1:{port}/bearward?sslmode=disable");
        format!("postgres = \"{url}\"\nschema = \"{}\"", server.schema())
    };
    let error = start_error(&text(&upstream, &keys(proxy(server, versions))), folder().path());
    assert!(error.contains(&format!("PostgreSQL {old} is too old; the gateway needs 14 or later")), "{error}");
    // Without the change, the way through the proxy works.
    let (upstream, folder) = (Upstream::start(), folder());
    let keys = keys(proxy(server, Vec::new()));
    let running = super::gateway(&upstream, &keys, &folder, &Arc::new(ManualClock::new()));
    running.issue("alice", "").await;
}
