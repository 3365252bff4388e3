//! A provider that issues no refresh token, although the gateway asks for one.

use serde_json::json;

use super::liar::{Liar, Lies};
use super::lies::response;
use super::{everything, gateway, journal};
use crate::support::visitor::Visitor;
use crate::support::{Upstream, secrets};

#[tokio::test]
async fn a_refresh_token_that_is_not_issued_is_one_warning_and_is_counted() {
    let offline = "scopes = [\"openid\", \"offline_access\"]";
    let parameter = "authorization_parameters = [\"access_type=offline\"]";
    for (name, keys, lies, warnings) in [
        ("grudging", offline, Lies::default(), 1),
        ("grudging-google", parameter, Lies::default(), 1),
        ("generous", offline, response(json!({ "refresh_token": "a-refresh-token" })), 0),
        ("not-asked", "", Lies::default(), 0),
    ] {
        let (liar, upstream, start) = (Liar::start(&json!({})), Upstream::start(), secrets::capture_log());
        let text = everything(&liar.issuer, keys).replace("\"main\"", &format!("\"{name}\""));
        let gateway = gateway(&upstream, &text).await;
        liar.tell(lies);
        for _ in 0..3 {
            let mut alice = Visitor::of(&gateway);
            assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303, "{name}");
        }
        let lines = journal(start, name);
        assert_eq!(lines.iter().filter(|line| line.contains("refresh token")).count(), warnings, "{name}: {lines:#?}");
        let metric = format!("bearward_sign_ins_without_refresh_token_total{{provider=\"{name}\"}}");
        assert_eq!(gateway.metric(&metric).await, if warnings == 0 { 0.0 } else { 3.0 }, "{name}");
    }
}
