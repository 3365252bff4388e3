//! The time of a rotation is that of the database, whatever the clock of a gateway says.

use std::time::Duration;

use bearward::store::{DecideRotation, FamilyStore, Store, StoreUpkeep};
use bearward::tokens::family::Family;
use bearward::tokens::family::rotation::{Rotation, rotate};
use bearward::types::clock::{TransactionTime, UnixTime};

use super::following::now;
use super::open;
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

const NEAR: Duration = Duration::from_secs(20);

/// The decision of a gateway that measures the grace period by the time of the store.
fn by_the_store(now: UnixTime) -> DecideRotation {
    Box::new(move |family, watermark, presented, of_store| {
        let time = TransactionTime { now, steady: of_store.unwrap_or_default() };
        rotate(family, watermark, presented, &roots(), &LIFETIMES, time)
    })
}

async fn present(store: &dyn Store, family: &Family, generation: u64) -> Rotation {
    store.rotate(token(family, generation), by_the_store(LOGIN), LOGIN.into()).await.expect("the store works")
}

fn sql(schema: &str, text: &str) -> String {
    PostgresServer::shared().sql("bearward", &format!("set search_path = {schema}; {text}"))
}

/// A confirmed child, written at the time of the database.
async fn in_second_generation(store: &dyn Store) -> Family {
    let family = issued(store, "alice", LOGIN).await;
    let Rotation::Rotated(child) = present(store, &family, 1).await else { panic!("it is the current token") };
    store.confirm(vec![(family.id, 2)]).await.expect("the store works");
    let child = Family { confirmed: 2, ..child };
    assert_eq!(stored(store, &family).await, child, "the response has the time of the write");
    child
}

#[tokio::test]
async fn a_rotation_has_the_time_of_the_database() {
    let schema = PostgresServer::shared().schema();
    let store = open(&schema);
    let before = now();
    let child = in_second_generation(&store).await;
    let distance = child.rotated_at.since(before).max(before.since(child.rotated_at));
    assert!(distance < NEAR && child.last_used_at == LOGIN, "{child:?}");
    assert_eq!(present(&store, &child, 1).await, Rotation::Replayed(child.clone()));
    // The last rotation was earlier than the grace period.
    let early = format!("update families set rotated_at = rotated_at - {}", LIFETIMES.grace.as_millis());
    sql(&schema, &early);
    assert!(matches!(present(&store, &child, 1).await, Rotation::Reused(_)));
}

/// The clock of the gateway where the session began says nothing about the grace period.
#[tokio::test]
async fn a_login_that_lies_ahead_does_not_lengthen_the_grace() {
    let schema = PostgresServer::shared().schema();
    let store = open(&schema);
    let before = now();
    let family = issued(&store, "alice", before + Duration::from_secs(3_600)).await;
    let Rotation::Rotated(child) = present(&store, &family, 1).await else { panic!("it is the current token") };
    assert!(child.rotated_at.since(before) < NEAR, "{child:?}");
    assert_eq!(stored(&store, &family).await, child, "the response has the time of the write");
    store.confirm(vec![(family.id, 2)]).await.expect("the store works");
    let early = format!("update families set rotated_at = rotated_at - {}", LIFETIMES.grace.as_millis());
    sql(&schema, &early);
    assert!(matches!(present(&store, &child, 1).await, Rotation::Reused(_)));
}

/// As a gateway of an older version writes it, if its clock is ahead.
#[tokio::test]
async fn a_rotation_that_lies_ahead_ends_no_session() {
    let schema = PostgresServer::shared().schema();
    let store = open(&schema);
    in_second_generation(&store).await;
    let child = in_second_generation(&store).await;
    sql(&schema, "update families set rotated_at = rotated_at + 3600000");
    let ahead = stored(&store, &child).await;
    assert_eq!(present(&store, &child, 1).await, Rotation::Replayed(ahead.clone()));
    let Rotation::Rotated(next) = present(&store, &child, 2).await else { panic!("it is the current token") };
    assert!(next.rotated_at >= ahead.rotated_at, "the grace period of the next one begins later");
    let counts = store.freshness().expect("the store is shared");
    assert!(counts.counts.ahead.load(std::sync::atomic::Ordering::Relaxed) >= 2);
}

/// What the gateways have found counts for all of them, also for one that starts later.
#[tokio::test]
async fn a_step_back_that_was_found_counts_for_every_gateway() {
    let schema = PostgresServer::shared().schema();
    drop(open(&schema));
    sql(&schema, "update clock set set_back = 3600000");
    let before = now();
    let child = in_second_generation(&open(&schema)).await;
    assert!(child.rotated_at.since(before) > Duration::from_secs(3_600) - NEAR, "{child:?}");
    // Also without its row.
    sql(&schema, "delete from clock");
    let child = in_second_generation(&open(&schema)).await;
    assert!(child.rotated_at.since(before) < NEAR, "{child:?}");
}
