//! How logs name a client that asks users: by the name that the operator has given it, or by a host. Never by a name
//! that the client has given itself.

use super::client_document::{self, SCHEME};

/// `is_named`: the operator has named the client. `goes_to`: where its code goes, the best that is known of a client
/// that has registered itself.
pub fn for_operators<'c>(client_id: &'c str, is_named: bool, goes_to: Option<&'c str>) -> Option<&'c str> {
    if is_named {
        return Some(client_id);
    }
    if client_id.starts_with(SCHEME) {
        return client_document::host_of(client_id).ok();
    }
    goes_to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_the_name_that_the_operator_or_the_network_gives_it() {
        let goes_to = Some("127.0.0.1");
        for (client_id, is_named, expected) in [
            ("notes", true, Some("notes")),
            ("https://client.example/a.json", true, Some("https://client.example/a.json")),
            ("https://client.example/a.json", false, Some("client.example")),
            ("https://user@client.example/a.json", false, None),
            ("bwd1_sealed", false, goes_to),
        ] {
            assert_eq!(for_operators(client_id, is_named, goes_to), expected, "{client_id}");
        }
    }
}
