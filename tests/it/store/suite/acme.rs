//! Accounts, orders and certificates of ACME.

use bearward::store::{AcmeEntry, Store};

fn entry(name: &str, version: u64) -> AcmeEntry {
    AcmeEntry { name: name.into(), version, root: 1, sealed: format!("{name} {version}").into() }
}

pub(crate) async fn an_entry_changes_one_version_at_a_time(store: &dyn Store) {
    let save = async |entry| store.save_acme_entry(entry).await.expect("writes");
    assert!(save(entry("a", 1)).await && save(entry("a", 2)).await && save(entry("b", 1)).await);
    let other = AcmeEntry { sealed: b"other".to_vec(), ..entry("a", 2) };
    for late in [entry("a", 1), other, entry("a", 4)] {
        assert!(!save(late).await, "another gateway was faster");
    }
    let changed = async |known: &[(&str, u64)]| {
        let known = known.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
        store.acme_entries(known).await.expect("reads")
    };
    assert_eq!(changed(&[]).await, [entry("a", 2), entry("b", 1)]);
    assert_eq!(changed(&[("a", 1), ("b", 1), ("c", 7)]).await, [entry("a", 2)]);
    assert_eq!(changed(&[("a", 2), ("b", 1)]).await, []);
    let deleted = |version| AcmeEntry { sealed: Vec::new(), ..entry("a", version) };
    assert!(!save(deleted(2)).await && save(deleted(3)).await);
    assert_eq!(changed(&[]).await, [entry("b", 1)]);
}
