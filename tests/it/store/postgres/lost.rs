//! A database that has lost many revocations, as after a failover to a standby that lagged: they are written again.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bearward::store::{FollowerCounts, RevocationStore, StoreUpkeep};
use bearward::tokens::family::revocation::Revoked;

use super::following::{Follower, now, sql, token_of};
use crate::support::postgres::PostgresServer;
use crate::support::wait::{eventually, eventually_within};

const PATIENCE: Duration = Duration::from_secs(60);

/// Each entry takes 2 ms, as in a busy database. A statement may take 4 s.
const SLOW: &str = "create function slow() returns trigger language plpgsql as
        $$ begin perform pg_sleep(0.002); return new; end $$;
    create trigger slow before insert on revocations for each row execute function slow()";

/// More than the database can write in one statement.
const MANY: u64 = 2_200;

/// Gateways that know `count` revocations, which the database has lost since.
async fn after_a_loss<const GATEWAYS: usize>(
    server: &PostgresServer,
    schema: &str,
    count: u64,
) -> ([Follower; GATEWAYS], Vec<Revoked>) {
    let gateways: [Follower; GATEWAYS] =
        std::array::from_fn(|number| Follower::open(server, schema, &format!("gateway-{number}")));
    let mut all = vec![gateways[0].revoke("first").await];
    let at = now().as_millis();
    let last = count + 1;
    let until = at + 3_600_000;
    let revoke = format!(
        "insert into revocations (sequence, kind, issuer, name, at, until, tag)
            select n, 'token', 'https://login.example', 'lost-' || n, {at}, {until}, decode(md5(n::text), 'hex')
            from generate_series(2, {last}) n;
        update meta set value = {last}, tag = decode(md5('{last}'), 'hex') where name = 'revocation_sequence'"
    );
    sql(server, schema, &revoke);
    all.extend((2..=last).map(|number| token_of(&format!("lost-{number}"))));
    for gateway in &gateways {
        eventually("all are enforced", || all.iter().all(|what| gateway.enforces(what))).await;
    }
    sql(server, schema, SLOW);
    let roll_back = "delete from revocations where sequence > 1;
        update meta set value = 1, tag = (select tag from revocations) where name = 'revocation_sequence'";
    sql(server, schema, roll_back);
    for gateway in &gateways {
        eventually("it was noticed", || gateway.count(forks) == 1).await;
    }
    (gateways, all)
}

fn forks(counts: &FollowerCounts) -> &AtomicU64 {
    &counts.forks
}

async fn until_written(server: &PostgresServer, schema: &str, expected: u64) {
    eventually_within(PATIENCE, "the database has all again", async || {
        let count = sql(server, schema, "select count(distinct name) from revocations where name like 'lost-%'");
        (count == expected.to_string()).then_some(()).ok_or(count)
    })
    .await;
}

#[tokio::test]
async fn many_lost_revocations_come_back_while_others_are_made() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let ([one, other], _) = after_a_loss(server, &schema, MANY).await;
    let (mut number, mut longest) = (0, Duration::ZERO);
    let is_back = async {
        until_written(server, &schema, MANY).await;
    };
    tokio::pin!(is_back);
    loop {
        let began = Instant::now();
        let name = format!("new-{number}");
        tokio::select! {
            () = &mut is_back => break,
            what = other.revoke(&name) => assert!(other.enforces(&what)),
        }
        longest = longest.max(began.elapsed());
        number += 1;
    }
    assert!(number > 10, "{number} revocations beside it");
    // The first statement of 512 entries takes more than a second, and the next ones are smaller.
    assert!(longest < Duration::from_secs(4), "{longest:?}");
    eventually("nothing is left", || [&one, &other].iter().all(|gateway| gateway.count(|counts| &counts.lost) == 0))
        .await;
    let written: u64 = [&one, &other].iter().map(|gateway| gateway.count(|counts| &counts.written_back)).sum();
    assert_eq!(written, MANY, "each of them once, although both gateways know them");
    assert_eq!(sql(server, &schema, "select count(*) = max(sequence) from revocations"), "t", "without gaps");
    let is_free = || sql(server, &schema, "select count(*) from leases where name = 'write_back'") == "0";
    eventually("the lease is free", is_free).await;
}

/// It would accept what it cannot know yet.
#[tokio::test]
async fn a_gateway_that_starts_meanwhile_waits_for_them() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let ([_one], all) = after_a_loss(server, &schema, 600).await;
    let held = "select count(*) from leases where name = 'write_back'";
    eventually("the other gateway writes them", || sql(server, &schema, held) == "1").await;
    let late = Follower::open(server, &schema, "late");
    late.store.freshness().expect("shared").loaded().await;
    let unknown = all.iter().filter(|what| !late.enforces(what)).count();
    assert_eq!(unknown, 0, "of {}", all.len());
}

/// The lease of a gateway that was killed ends.
#[tokio::test]
async fn another_gateway_goes_on_if_the_one_that_writes_is_killed() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    drop(Follower::open(server, &schema, "before"));
    let killed = "insert into leases (name, holder, epoch, until)
        select 'write_back', 'killed', 1, (extract(epoch from clock_timestamp()) * 1000)::bigint + 10000";
    sql(server, &schema, killed);
    let ([one], _) = after_a_loss(server, &schema, 100).await;
    eventually("they wait", || one.count(|counts| &counts.lost) == 100).await;
    assert_eq!(sql(server, &schema, "select count(*) from revocations"), "1", "another gateway writes them");
    until_written(server, &schema, 100).await;
}

/// An entry that the database rejects, as after a flaw of a program, stops no other.
#[tokio::test]
async fn one_revocation_that_cannot_be_written_stops_no_other() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    drop(Follower::open(server, &schema, "before"));
    let reject = "create function reject() returns trigger language plpgsql as
            $$ begin if new.name = 'lost-7' and new.tag <> decode(md5('7'), 'hex') then raise 'rejected'; end if;
            return new; end $$;
        create trigger reject before insert on revocations for each row execute function reject()";
    sql(server, &schema, reject);
    let ([one], _) = after_a_loss(server, &schema, 20).await;
    until_written(server, &schema, 19).await;
    eventually("one is left", || one.count(|counts| &counts.lost) == 1).await;
}

/// The watermark in its table is lost, too, and comes back with the entry.
#[tokio::test]
async fn a_lost_watermark_of_a_client_comes_back() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let gateways = ["a", "b"].map(|replica| Follower::open(server, &schema, replica));
    gateways[0].revoke("first").await;
    let subjects = [None, Some("alice".to_owned())];
    for subject in subjects {
        let what = Revoked::Client { client_id: "https://a.example/c".into(), subject, not_after: now() };
        gateways[0].store.revoke(what.clone(), now().into()).await.expect("the store works");
        eventually("the other one enforces it", || gateways[1].enforces(&what)).await;
    }
    let roll_back = "delete from revocations where sequence > 1; delete from clients;
        update meta set value = 1, tag = (select tag from revocations) where name = 'revocation_sequence'";
    sql(server, &schema, roll_back);
    for (table, named) in [("revocations", "client"), ("clients", "client_id")] {
        let count = format!("select count(*) from {table} where {named} = 'https://a.example/c'");
        eventually_within(PATIENCE, "the database has both again", async || {
            let count = sql(server, &schema, &count);
            (count == "2").then_some(()).ok_or(count)
        })
        .await;
    }
}
