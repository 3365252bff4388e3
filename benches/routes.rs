//! The path check and the route look-up.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use bearward::gateway::route_table::RouteTable;
use bearward::protocols::http::path::CanonicalPath;
use criterion::{Criterion, criterion_group, criterion_main};
use http::Method;

use setup::steps::routes;

mod setup;

fn find(c: &mut Criterion) {
    let mut group = c.benchmark_group("route");
    for count in [10, 1_000] {
        let table = RouteTable::new(&routes(count), 1);
        for (name, path) in [
            ("short path", "/api/orders/8731".to_owned()),
            ("deep path", format!("/api/service-{}/v1/customers/4711/orders/8731/lines/12", count - 1)),
            ("encoded path", "/%61pi/orders/caf%C3%A9".to_owned()),
            ("no route", "/nothing/leads/here".to_owned()),
        ] {
            let path = CanonicalPath::parse(&path).expect("a canonical path");
            assert_eq!(table.find("gateway.example", &Method::GET, &path).is_ok(), name != "no route");
            group.bench_function(format!("{count} routes/{name}"), |b| {
                b.iter(|| table.find("gateway.example", &Method::GET, &path));
            });
        }
    }
}

fn check(c: &mut Criterion) {
    let mut group = c.benchmark_group("path");
    for (name, path) in [
        ("short", "/api/orders/8731"),
        ("deep", "/api/service-9/v1/customers/4711/orders/8731/lines/12"),
        ("encoded", "/%61pi/orders/caf%C3%A9"),
        ("rejected", "/api/orders/..%2f..%2fadmin"),
    ] {
        assert_eq!(CanonicalPath::parse(path).is_ok(), name != "rejected");
        group.bench_function(name, |b| b.iter(|| CanonicalPath::parse(path)));
    }
}

criterion_group!(benches, find, check);
criterion_main!(benches);
