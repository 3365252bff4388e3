//! Load balancing: which server of a group gets a request.

use std::collections::HashMap;

use http::Request;

use super::{addresses, counts, in_front_of};
use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream};

fn three() -> [Upstream; 3] {
    [Upstream::start(), Upstream::start(), Upstream::start()]
}

#[tokio::test]
async fn round_robin_uses_the_servers_in_order() {
    let backends = three();
    let gateway = in_front_of(&addresses(&backends), "");
    let mut connection = HttpConnection::http1(gateway.address()).await;
    for _ in 0..30 {
        connection::text(
            connection.send(Request::get("/").body(connection::empty()).expect("a request")).await.into_body(),
        )
        .await;
    }
    assert_eq!(counts(&backends), [10, 10, 10]);
    for backend in &backends {
        assert_eq!(backend.connections(), 1);
    }
}

#[tokio::test]
async fn the_server_with_fewer_requests_gets_the_next_one() {
    let backends = [Upstream::start(), Upstream::start()];
    let gateway = in_front_of(&addresses(&backends), "balance = \"least_requests\"");
    let mut busy = Vec::new();
    for count in 1..=6 {
        let connection = HttpConnection::http1(gateway.address()).await;
        busy.push(tokio::spawn(
            connection.sender().send(Request::get("/hang").body(connection::empty()).expect("a request")),
        ));
        eventually("the request is in flight", || backends.iter().map(Upstream::in_flight).sum::<usize>() == count)
            .await;
    }
    assert_eq!(
        backends.each_ref().map(Upstream::in_flight),
        [3, 3],
        "each request went to the server with fewer requests"
    );
    let in_flight = super::metric(&gateway, "requests", backends[0].address).await;
    assert_eq!(in_flight, 3.0);
    busy.into_iter().for_each(|request| request.abort());
}

/// Returns the index of the server of each tenant.
async fn places(gateway: &Gateway, backends: &[Upstream], tenants: usize) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for tenant in 0..tenants {
        let tenant = format!("tenant-{tenant}");
        let before = counts(backends);
        assert_eq!(gateway.client().header("x-tenant", &tenant).get("/").await.status, 200);
        let after = counts(backends);
        let place = (0..backends.len()).find(|at| after[*at] > before[*at]).expect("a server got the request");
        places.insert(tenant, place);
    }
    places
}

#[tokio::test]
async fn a_key_keeps_its_server_when_another_server_fails() {
    /// One of 10^7 runs moves all tenants of a server to the same one.
    const TENANTS: usize = 80;
    let mut backends = three();
    let servers = addresses(&backends);
    let more = "balance = \"hash\"\nhash = \"header:X-Tenant\"\n[upstream.ejection]\nconsecutive_failures = 1\nbase_time = \"1h\"\nmax_time = \"1h\"";
    let gateway = in_front_of(&servers, more);
    let first = places(&gateway, &backends, TENANTS).await;
    assert_eq!(places(&gateway, &backends, TENANTS).await, first);
    // Another gateway with another order of the servers selects the same ones.
    let other = in_front_of(&[servers[2], servers[0], servers[1]], more);
    assert_eq!(places(&other, &backends, TENANTS).await, first);
    let of = |place: usize| first.values().filter(|at| **at == place).count();
    assert!((0..3).all(|place| of(place) >= 4), "{first:?}");

    // Another server takes its place in the list, and its old address does not respond.
    backends[1] = Upstream::start();
    let after = places(&gateway, &backends, TENANTS).await;
    let mut new_servers = [0; 3];
    for (tenant, place) in &first {
        match place {
            1 => new_servers[after[tenant]] += 1,
            _ => assert_eq!(after[tenant], *place, "{tenant} keeps its server"),
        }
    }
    assert!(new_servers[0] > 0 && new_servers[2] > 0 && new_servers[1] == 0, "{new_servers:?}");
    // Requests without a key go to the other servers in turn.
    let before = counts(&backends);
    for _ in 0..8 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    let after = counts(&backends);
    assert_eq!((after[0] - before[0], after[2] - before[2]), (4, 4));
}

#[tokio::test]
async fn a_subject_keeps_its_server() {
    let backends = three();
    let servers: Vec<String> = backends.iter().map(|backend| backend.address.to_string()).collect();
    let text = Gateway::config_text(&servers.join("\", \"http://"), "balance = \"hash\"\nhash = \"subject\"");
    let gateway = Gateway::from_text(text);
    let mut used = 0;
    // The ports are random, and so is the server of a subject. One of 10^11 runs puts all of these on one server.
    for subject in (0..24).map(|number| format!("user-{number}")) {
        let before = counts(&backends);
        // Two logins of the same subject, so that the test shows the subject and not the token as the key.
        for _ in 0..2 {
            let pair = gateway.issue(&subject, "").await;
            assert_eq!(gateway.status_of(&pair.access).await, 200);
        }
        let after = counts(&backends);
        let places: Vec<usize> = (0..3).filter(|at| after[*at] > before[*at]).collect();
        assert_eq!(places.len(), 1, "{subject}: {places:?}");
        used |= 1 << places[0];
    }
    assert_ne!((used as u32).count_ones(), 1, "the subjects use more than one server");
}
