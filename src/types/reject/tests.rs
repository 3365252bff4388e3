use http::StatusCode;

use super::*;

#[test]
fn codes_are_unique_and_indexes_correct() {
    let mut codes: Vec<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    for (place, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(reason.index(), place);
    }
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), Reason::ALL.len());
}

/// A client that refreshes on each 401 would otherwise loop with an invalid refresh token.
#[test]
fn an_invalid_grant_is_never_401() {
    for reason in Reason::ALL {
        let is_of_grant = ["grant_", "code_"].iter().any(|begin| reason.code().starts_with(begin));
        assert_eq!(reason.public_code() == "invalid_grant", is_of_grant, "{reason:?}");
        if reason.public_code() == "invalid_grant" {
            assert_eq!(reason.status(), StatusCode::BAD_REQUEST);
        }
    }
}
