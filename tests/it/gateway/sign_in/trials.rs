//! A reload that changes how the gateway identifies itself at a provider tries it.

use std::sync::Arc;

use bearward::config::{self, Probe};
use bearward::types::secret;

use super::callbacks::INVALID_GRANT;
use super::liar::{Liar, Lies};
use super::{everything, gateway};
use crate::support::{Gateway, Upstream};

const KEYS: &str = "scopes = [\"openid\", \"offline_access\"]";
const INVALID_CLIENT: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n\
                              {\"error\":\"invalid_client\"}";

#[tokio::test]
async fn a_mistyped_secret_is_reported_by_the_reload() {
    let (liar, upstream) = (Liar::start(&serde_json::json!({})), Upstream::start());
    let gateway = Arc::new(gateway(&upstream, &everything(&liar.issuer, KEYS)).await);
    let rewrite = |content: &[u8]| {
        secret::write_private(&gateway.path().join("new"), content).expect("written");
        std::fs::rename(gateway.path().join("new"), gateway.path().join("client.secret")).expect("renamed");
    };
    let reload = async |keys: &str| {
        let text = Gateway::config_text(&upstream.address.to_string(), &everything(&liar.issuer, keys));
        let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
        let reloading = gateway.clone();
        let reloaded = tokio::task::spawn_blocking(move || reloading.running().reload(config)).await.expect("no panic");
        reloaded.expect("it reloads").warnings
    };
    let rejecting = || Lies { raw: Some(INVALID_CLIENT), ..Lies::default() };
    liar.tell(rejecting());
    // The same file has another secret.
    rewrite(b"mistyped");
    let said = "provider main: the provider rejects this gateway as a client: 401 Unauthorized (invalid_client)";
    let warnings = reload(KEYS).await;
    assert!(matches!(&warnings[..], [one] if one.starts_with(said)), "{warnings:?}");
    let asked = liar.exchanges();
    let invented = asked.iter().filter_map(|form| form.get("refresh_token")).map(String::len);
    assert_eq!(invented.collect::<Vec<_>>(), [32], "one refresh with an invented token");
    // What the provider was not asked about before.
    let wider = format!("{KEYS}\nclaims = [\"email\"]");
    assert!(reload(&wider).await.iter().all(|warning| !warning.contains("invalid_client")));
    assert_eq!(liar.exchanges().len(), 1, "a known registration is not tried");
    liar.tell(Lies { raw: Some(INVALID_GRANT), ..Lies::default() });
    rewrite(b"the right one");
    assert_eq!(reload(&wider).await, Vec::<String>::new());
    assert_eq!(liar.exchanges().len(), 2);
}
