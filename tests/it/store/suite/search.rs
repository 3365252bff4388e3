//! A search of sessions by their subject.

use std::time::Duration;

use bearward::store::{Position, RevokedBy, Search, SearchState, Store, Subjects};
use bearward::tokens::family::Family;
use bearward::tokens::family::revocation::Revoked;
use bearward::types::clock::UnixTime;

use crate::support::given::*;

const NOW: UnixTime = UnixTime::from_millis(LOGIN.as_millis() + 10_000);

fn with_prefix(prefix: &str) -> Subjects {
    Subjects::WithPrefix(prefix.into())
}

/// The first page of the live sessions.
fn all_of(subjects: Subjects) -> Search {
    let state = SearchState::Live;
    Search { subjects, state, client_id: None, resource: None, after: None, limit: 500, now: NOW }
}

/// All pages of a search, with at most `limit` sessions each.
async fn pages(store: &dyn Store, subjects: Subjects, state: SearchState, limit: usize) -> Vec<Vec<Family>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let search = Search { state, after, limit, ..all_of(subjects.clone()) };
        let found = store.search(search).await.expect("the store works");
        assert!(found.families.len() <= limit && pages.len() < 1_000);
        pages.push(found.families);
        match found.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

async fn found(store: &dyn Store, subjects: Subjects, state: SearchState) -> Vec<Family> {
    let all = pages(store, subjects.clone(), state, 500).await.concat();
    for limit in [1, 3] {
        assert_eq!(pages(store, subjects.clone(), state, limit).await.concat(), all, "{limit} in a page");
    }
    all
}

/// The subjects of the found sessions.
async fn subjects(store: &dyn Store, wanted: Subjects) -> Vec<String> {
    found(store, wanted, SearchState::All).await.into_iter().map(|family| family.subject).collect()
}

pub(crate) async fn pages_have_each_session_once_in_order(store: &dyn Store) {
    let mut written = Vec::new();
    for (number, subject) in ["bob", "alice", "bob", "carol", "alice", "bob", "Bob"].into_iter().enumerate() {
        // Some logins of one subject have the same time.
        written.push(issued(store, subject, LOGIN + Duration::from_secs(number as u64 / 3)).await);
    }
    rotated(store, &written[0], 1, NOW).await;
    let id = |family: &Family| family.id.to_string();
    let newer = |family: &Family| std::cmp::Reverse((family.created_at, id(family)));
    written.sort_by(|one, other| (&one.subject, newer(one)).cmp(&(&other.subject, newer(other))));
    let ids = |families: &[Family]| families.iter().map(id).collect::<Vec<_>>();
    let all = found(store, with_prefix(""), SearchState::Live).await;
    assert_eq!(ids(&all), ids(&written));
    for family in &all {
        assert_eq!(*family, stored(store, family).await);
    }
    let full = pages(store, with_prefix(""), SearchState::All, written.len()).await;
    assert_eq!(full.len(), 1, "no empty page follows a full one");

    // A session that began meanwhile does not move the others.
    let page = |after: Option<Position>| {
        let subjects = with_prefix("");
        store.search(Search { after, limit: 3, ..all_of(subjects) })
    };
    let first = page(None).await.expect("the store works");
    issued(store, "Bob", NOW).await;
    let second = page(first.next).await.expect("the store works");
    assert_eq!(ids(&[first.families, second.families].concat()), ids(&written[..6]));
}

pub(crate) async fn a_search_finds_one_subject_or_a_prefix(store: &dyn Store) {
    let all = [
        "%",
        "A",
        "AL",
        "a",
        "a\0",
        "a\0b",
        "al",
        "al%ice",
        "al_ice",
        "alice",
        "alice2",
        "alices",
        "b",
        "\u{D7FF}x",
        "\u{E000}",
        "\u{FFFF}",
        "é",
        "日本",
        "日本語",
        "📱",
        "📱a",
        "\u{10FFFF}",
        "\u{10FFFF}\u{10FFFF}",
    ];
    for subject in all {
        issued(store, subject, LOGIN).await;
    }
    for wanted in all.into_iter().chain(["", "ali", "alicf", "AL%", "al%", "_", "日", "zz", "\0"]) {
        let one = subjects(store, Subjects::One(wanted.into())).await;
        assert_eq!(one, all.into_iter().filter(|subject| *subject == wanted).collect::<Vec<_>>(), "{wanted:?}");
        let mut expected: Vec<_> = all.into_iter().filter(|subject| subject.starts_with(wanted)).collect();
        expected.sort_unstable();
        let mut prefixed = subjects(store, with_prefix(wanted)).await;
        // PostgreSQL has no text with U+0000, and so another place for it.
        prefixed.sort_unstable();
        assert_eq!(prefixed, expected, "{wanted:?}");
    }
}

pub(crate) async fn a_search_finds_the_wanted_state(store: &dyn Store) {
    let seconds = Duration::from_secs;
    let live = issued(store, "alice", LOGIN).await;
    let logged_out = issued(store, "alice", LOGIN + seconds(1)).await;
    let owner = RevokedBy::Owner("alice".into());
    store.revoke_family(logged_out.id, owner, NOW.into()).await.expect("the store works");
    for (idle_expiry, absolute_expiry) in [(NOW, live.absolute_expiry), (live.idle_expiry, NOW)] {
        let family = Family { idle_expiry, absolute_expiry, ..login("alice", LOGIN + seconds(2)) };
        store.issue(family, ANY, LOGIN.into()).await.expect("the store works");
    }
    issued(store, "bob", LOGIN).await;
    let issuer = ISSUER.to_owned();
    let what = Revoked::Subject { issuer, subject: "bob".into(), not_after: LOGIN };
    store.revoke(what, NOW.into()).await.expect("the store works");
    let later = issued(store, "bob", LOGIN + seconds(1)).await;

    let ids = |families: Vec<Family>| families.into_iter().map(|family| family.id).collect::<Vec<_>>();
    let states = [(SearchState::Live, 2), (SearchState::Ended, 4), (SearchState::All, 6)];
    for (state, count) in states {
        let all = found(store, with_prefix(""), state).await;
        assert_eq!(all.len(), count, "{state:?}");
        for family in all {
            let is_live = family.is_live(NOW);
            assert!(state == SearchState::All || is_live == (state == SearchState::Live), "{family:?}");
            assert_eq!(family, stored(store, &family).await);
        }
    }
    assert_eq!(ids(found(store, with_prefix(""), SearchState::Live).await), [live.id, later.id]);
    assert_eq!(ids(found(store, Subjects::One("bob".into()), SearchState::Live).await), [later.id]);

    store.revoke(Revoked::Everything { not_after: NOW }, NOW.into()).await.expect("the store works");
    assert_eq!(found(store, with_prefix(""), SearchState::Live).await, []);
    assert_eq!(found(store, with_prefix(""), SearchState::Ended).await.len(), 6);
}

/// More than one page looks at.
pub(crate) async fn ended_sessions_do_not_slow_a_page_down(store: &dyn Store) {
    let idle = |number: usize| Family { idle_expiry: LOGIN, ..login(&format!("a{number}"), LOGIN) };
    let numbers: Vec<usize> = (0..2_100).collect();
    for some in numbers.chunks(1_000) {
        let issued: Vec<_> = some.iter().map(|number| store.issue(idle(*number), ANY, LOGIN.into())).collect();
        for issued in issued {
            issued.await.expect("the store works");
        }
    }
    issued(store, "b", LOGIN).await;
    let found = pages(store, with_prefix(""), SearchState::Live, 50).await;
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1], "the first page stops before it finds one");
    assert_eq!(pages(store, with_prefix("a"), SearchState::Live, 50).await.concat(), []);
}

pub(crate) async fn a_search_finds_a_client_and_a_resource(store: &dyn Store) {
    let mut written = Vec::new();
    for (client_id, audience) in [
        ("app", vec!["https://api.example"]),
        ("spa", vec!["https://api.example", "https://api.example/mcp"]),
        ("spa", vec!["https://api.example/mcp"]),
        ("sp", vec!["https://api.example/m"]),
        ("", vec![]),
    ] {
        let audience = audience.into_iter().map(str::to_owned).collect();
        let family = Family { client_id: client_id.into(), audience, ..login("alice", LOGIN) };
        let family = store.issue(family, ANY, LOGIN.into()).await.expect("the store works").expect("it is valid");
        written.push(family.id);
    }
    for (client_id, resource, expected) in [
        (None, None, vec![0, 1, 2, 3, 4]),
        (Some("spa"), None, vec![1, 2]),
        (Some("spa"), Some("https://api.example"), vec![1]),
        (None, Some("https://api.example"), vec![0, 1]),
        (None, Some("https://api.example/mcp"), vec![1, 2]),
        (Some("app"), Some("https://api.example/mcp"), vec![]),
        (Some("s%"), None, vec![]),
    ] {
        let (client_id, resource) = (client_id.map(str::to_owned), resource.map(str::to_owned));
        for state in [SearchState::Live, SearchState::All] {
            let filter =
                Search { state, client_id: client_id.clone(), resource: resource.clone(), ..all_of(with_prefix("")) };
            let found = store.search(filter).await.expect("the store works").families;
            let mut places: Vec<_> =
                found.iter().filter_map(|family| written.iter().position(|id| *id == family.id)).collect();
            places.sort_unstable();
            assert_eq!(places, expected, "{client_id:?} {resource:?} {state:?}");
        }
    }
}
