//! `limits.sessions_per_subject` with logins at several gateways at the same time.

use std::collections::HashSet;

use bearward::store::postgres::PostgresStore;
use bearward::store::{FamilyStore, RevocationStore, Store};
use bearward::tokens::family::revocation::Revoked;
use bearward::types::ids::TokenId;
use futures_util::future::join_all;

use super::open;
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

const LIMIT: usize = 5;

async fn live(store: &dyn Store, subject: &str) -> HashSet<TokenId> {
    let families = store.families_of(subject.into()).await.expect("the store works");
    families.iter().filter(|family| family.revoked.is_none()).map(|family| family.id).collect()
}

fn three_gateways() -> [PostgresStore; 3] {
    let schema = PostgresServer::shared().schema();
    std::array::from_fn(|_| open(&schema))
}

/// All at the same millisecond, too, so that no login is the older one by its times.
#[tokio::test]
async fn logins_at_the_same_time_do_not_exceed_the_limit() {
    let stores = three_gateways();
    for round in 0..10 {
        let subject = format!("subject {round}");
        for _ in 0..LIMIT {
            issued(&stores[0], &subject, LOGIN).await;
        }
        let old = live(&stores[0], &subject).await;
        let logins = (0..30).map(|number| {
            let issued = stores[number % 3].issue(login(&subject, LOGIN), LIMIT, LOGIN.into());
            let stores = &stores;
            let subject = &subject;
            async move {
                let family = issued.await.expect("the store works").expect("no watermark");
                // Others may be written, but are not answered yet.
                (family.id, live(&stores[number % 3], subject).await)
            }
        });
        let all: Vec<(TokenId, HashSet<TokenId>)> = join_all(logins).await;
        let left = live(&stores[0], &subject).await;
        assert_eq!(left.len(), LIMIT, "round {round}");
        assert!(left.is_disjoint(&old), "the new ones are left");
        assert!(all.iter().all(|(new, _)| !old.contains(new)));
        // What has ended is in the log, once.
        let log = stores[1].revocations_since(0).await.expect("the store works");
        let ended = |id: &TokenId| log.iter().filter(|entry| entry.what == Revoked::Family(*id)).count();
        for id in old.iter().chain(all.iter().map(|(id, _)| id)) {
            assert_eq!(ended(id), usize::from(!left.contains(id)), "round {round}");
        }
    }
}

#[tokio::test]
async fn the_newest_login_stays_whatever_the_clock_says() {
    let stores = three_gateways();
    let later = issued(&stores[0], "alice", LOGIN + GRACE).await;
    for (number, store) in stores.iter().cycle().take(6).enumerate() {
        let family = store.issue(login("alice", LOGIN), 2, LOGIN.into()).await.expect("works").expect("no watermark");
        let left = live(store, "alice").await;
        assert!(left.contains(&family.id) && left.len() <= 2, "{number}");
    }
    assert!(!live(&stores[0], "alice").await.contains(&later.id));
}
