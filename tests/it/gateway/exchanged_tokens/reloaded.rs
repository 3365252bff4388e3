//! A reload that changes where tokens are exchanged tries it.

use std::sync::Arc;

use bearward::config::{self, Probe};

use super::server::TokenServer;
use super::{ROUTES, exchanges, gateway};
use crate::support::{Gateway, Upstream};

/// Reloads while the server, which runs on this thread, can answer. Returns the warnings.
async fn reload(gateway: &Arc<Gateway>, upstream: &Upstream, server: &TokenServer) -> Vec<String> {
    reload_with(gateway, upstream, &exchanges(server)).await
}

async fn reload_with(gateway: &Arc<Gateway>, upstream: &Upstream, exchanges: &str) -> Vec<String> {
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{exchanges}{ROUTES}"));
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    let gateway = gateway.clone();
    let reloaded = tokio::task::spawn_blocking(move || gateway.running().reload(config)).await.expect("no panic");
    reloaded.expect("it reloads").warnings
}

fn answer(server: &TokenServer, status: u16, body: &'static str) {
    let mut state = server.state();
    state.status = status;
    state.body = Some(body);
}

#[tokio::test]
async fn a_server_that_would_reject_every_exchange_is_reported() {
    let upstream = Upstream::start();
    let first = TokenServer::start();
    let second = TokenServer::start();
    let gateway = Arc::new(gateway(&upstream, &first, ""));
    answer(&second, 401, r#"{"error":"invalid_client"}"#);
    let mut warnings = reload(&gateway, &upstream, &second).await;
    warnings.sort();
    let said = "the server responded 401 Unauthorized: invalid_client";
    assert_eq!(warnings, [format!("token_exchange orders: {said}"), format!("token_exchange stock: {said}")]);
    // How a good server rejects a token that does not exist.
    answer(&first, 400, r#"{"error":"invalid_request"}"#);
    assert_eq!(reload(&gateway, &upstream, &first).await, Vec::<String>::new());
    let asked = first.count();
    assert_eq!(reload(&gateway, &upstream, &first).await, Vec::<String>::new());
    assert_eq!(first.count(), asked, "a known server is not asked");
    // Something else is asked of it.
    answer(&first, 400, r#"{"error":"invalid_scope"}"#);
    let wider = exchanges(&first).replace("orders:list", "orders:all");
    let said = "token_exchange orders: the server responded 400 Bad Request: invalid_scope";
    assert_eq!(reload_with(&gateway, &upstream, &wider).await, [said]);
    assert_eq!(first.count(), asked + 1);
}
