//! The cache of verified tokens, and its entries.

use super::*;
use crate::tokens::family::revocation::{Revocation, Revoked};

const ISSUED: UnixTime = UnixTime::from_secs(1_000);
const EXPIRES: UnixTime = UnixTime::from_secs(1_300);

fn known() -> CachedToken {
    let mut token = VerifiedToken::with_subject("alice".into());
    (token.dated, token.not_before, token.expires) = (ISSUED, ISSUED, EXPIRES);
    let identity = vec![(HeaderName::from_static("x-user"), HeaderValue::from_static("alice"))];
    CachedToken::new("a.b.c", token, identity, 1)
}

#[test]
fn the_size_of_an_entry_counts_all_that_it_keeps() {
    let token = Arc::from([b'x'; 100]);
    let known = Arc::new(known());
    let headers = "x-user".len() + "alice".len() + 64;
    let size = Bytes { replacements: 0 }.weight(&token, &known);
    assert_eq!(size, (5 * 100 + headers + 512) as u64);
    let replacements = Bytes { replacements: 3 }.weight(&token, &known) - size;
    assert_eq!(replacements, 3 * (100 + 512));
    assert_eq!(Bytes { replacements: 3 }.weight(&Box::from([b'x'; 100]), &1), 100 + 96);
}

#[test]
fn bad_signatures_get_a_sixteenth_of_the_capacity() {
    let cache = TokenCache::new(1 << 20);
    assert_eq!((cache.known.capacity(), cache.forged.capacity()), (1 << 20, 1 << 16));
}

#[test]
fn a_bad_signature_is_remembered_for_one_revision_of_keys() {
    let cache = TokenCache::new(1 << 20);
    let token = |text| BearerToken::from_text(text, 100).expect("short");
    cache.insert_bad_signature("a.b.c", 1);
    let has = |text, key_revision| cache.has_bad_signature(token(text), key_revision);
    assert_eq!((has("a.b.c", 1), has("a.b.c", 2), has("a.b.d", 1), cache.count()), (true, false, false, 0));
    for text in ["a.b.c", "a.b.d"] {
        cache.insert(Arc::new(CachedToken { text: text.into(), ..known() }));
    }
    assert_eq!(cache.count(), 2);
}

#[test]
fn a_change_of_keys_is_checked_until_the_token_passes() {
    let known = known();
    assert!(known.is_valid_in(1, |_| panic!("the keys are the same")));
    assert!(!known.is_valid_in(2, |_| false) && known.key_revision() == 1);
    assert!(!known.is_valid_in(2, |_| false), "checked again");
    assert!(known.is_valid_in(2, |_| true) && known.key_revision() == 2);
    assert!(known.is_valid_in(2, |_| panic!("the keys are the same")));
}

#[test]
fn a_token_is_valid_from_its_first_to_its_last_millisecond() {
    let known = known();
    let millisecond = Duration::from_millis(1);
    let check = |now| known.check_time(now).map_err(|reject| reject.reason);
    assert_eq!(check(ISSUED - millisecond), Err(Reason::NotYetValid));
    assert_eq!((check(ISSUED), check(EXPIRES - millisecond)), (Ok(()), Ok(())));
    assert_eq!(check(EXPIRES), Err(Reason::Expired));
}

#[test]
fn a_token_stays_rejected_after_its_revocation() {
    let known = known();
    let revocations = Revocations::new();
    let is_revoked = || known.check_revocation(&revocations).is_err();
    let revoke = |subject: &str, sequence| {
        let issuer = known.token.issuer.to_string();
        let subject = subject.to_owned();
        let what = Revoked::Subject { issuer, subject, not_after: ISSUED };
        revocations.enforce(&Revocation { sequence, what, at: ISSUED, until: EXPIRES });
    };
    revoke("bob", 1);
    assert!(!is_revoked() && known.checked_epoch.load(Ordering::Acquire) == revocations.epoch());
    revoke("alice", 2);
    assert!(is_revoked() && is_revoked());
}
