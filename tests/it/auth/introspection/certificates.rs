//! Opaque tokens that are bound to a client certificate (RFC 8705 section 3.2).

use std::sync::Arc;

use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;

use super::endpoint::{Endpoint, write_client_secret};
use super::{LOGIN, issuer};
use crate::auth::certificate_bound::{authorization, certificate, thumbprint};
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream, secrets};

#[tokio::test]
async fn an_opaque_token_is_good_beside_its_certificate_alone() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let folder = Arc::new(TempDir::new().expect("a folder"));
    write_client_secret(folder.path());
    let more = issuer(LOGIN, &endpoint, "", "");
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", &more);
    let [own, other] = [0, 1].map(|_| certificate(&KeyPair::generate().expect("a key")));
    let hash = thumbprint(&own.0[0]);
    endpoint.answer_json(move |token| match token {
        "bound.1" => json!({ "cnf": { "x5t#S256": hash } }),
        _ => json!({}),
    });
    let _ = ["bound.1", "free.1"].map(secrets::remember);
    let [own, other, none] = [Some(own), Some(other), None].map(|shown| MutualClient::new(&gateway, shown));
    // Twice each: the second time, the answer is known.
    for (client, expected) in [(&other, 401), (&own, 200), (&none, 401), (&own, 200), (&other, 401)] {
        assert_eq!(client.status("/", &authorization("bound.1")).await, expected);
        assert_eq!(client.status("/", &authorization("free.1")).await, 200);
    }
    assert_eq!(endpoint.count(), 2, "one question for each token");
    gateway.log_line(|line| line["reason"] == "certificate_other").await;
}
