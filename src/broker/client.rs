//! The client to which the tokens of a family belong. Pure.

use crate::types::reject::{Reason, Reject};

/// Rejects a client with the token of another one. A token is bound to the client that it was issued to, if that is
/// known (RFC 6749 section 6, RFC 7009 section 2.1). Clients are public, so `claimed` is not authenticated.
pub fn check_client_id(issued_to: &str, claimed: Option<&str>) -> Result<(), Reject> {
    if issued_to.is_empty() || claimed == Some(issued_to) {
        Ok(())
    } else {
        Err(Reject::new(Reason::GrantMismatch, "the token was issued to another client_id"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_client_needs_the_same_client() {
        for (issued_to, claimed, accepted) in [
            ("", None, true),
            ("", Some("app"), true),
            ("app", Some("app"), true),
            ("app", Some("App"), false),
            ("app", Some(""), false),
            ("app", None, false),
        ] {
            assert_eq!(check_client_id(issued_to, claimed).is_ok(), accepted, "{issued_to:?} {claimed:?}");
        }
    }
}
