//! Clients that log in, refresh and log out until the program is killed, and that remember the responses.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bearward::types::ids::TokenId;
use bearward::types::secret;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::TokenPair;
use crate::support::connection::{Body, HttpConnection, empty, full};
use crate::support::program::GatewayProcess;

pub const CLIENTS: usize = 8;

/// One login, as its client remembers it.
pub struct Login {
    /// Every token pair of a response, the oldest first.
    pub pairs: Vec<TokenPair>,
    /// The request that has no response yet.
    pub unanswered: Option<Call>,
    pub revoked: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Call {
    Refresh,
    Revoke,
}

/// The addresses and the admin token that clients use.
#[derive(Clone)]
pub struct Entrance {
    pub public: SocketAddr,
    pub admin: SocketAddr,
    pub admin_token: String,
}

impl Entrance {
    pub fn to(served: &GatewayProcess, folder: &Path) -> Entrance {
        let token = std::fs::read_to_string(folder.join("admin.token")).expect("created at startup");
        Entrance { public: served.addresses[0], admin: served.admin, admin_token: token.trim().to_owned() }
    }

    pub async fn public(&self) -> HttpConnection {
        HttpConnection::http1(self.public).await
    }
}

/// All clients work until the program is killed.
pub async fn work_until_killed(served: GatewayProcess, folder: &Path) -> Vec<Login> {
    let entrance = Entrance::to(&served, folder);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(work(
            entrance.public().await,
            HttpConnection::http1(entrance.admin).await,
            entrance.admin_token.clone(),
        ));
    }
    // Not a wait for a condition: the kill comes at a random moment.
    let until_kill = Duration::from_millis(150 + u64::from(secret::random::<1>()[0]));
    tokio::time::sleep(until_kill).await;
    served.program.kill();
    clients.join_all().await.into_iter().flatten().collect()
}

/// Logs in, refreshes, logs out every other time, and repeats this until a response is missing.
pub async fn work(mut public: HttpConnection, mut admin: HttpConnection, admin_token: String) -> Vec<Login> {
    let mut logins: Vec<Login> = Vec::new();
    while let Some(pair) = request_login(&mut admin, &admin_token).await {
        let logs_out = logins.len().is_multiple_of(2);
        logins.push(Login { pairs: vec![pair], unanswered: None, revoked: false });
        let Some(login) = logins.last_mut() else { break };
        if login.use_until_killed(&mut public, logs_out).await.is_none() {
            break;
        }
    }
    logins
}

impl Login {
    pub fn newest(&self) -> &TokenPair {
        self.pairs.last().expect("the login returned a pair")
    }

    /// `None` if a response is missing.
    pub async fn use_until_killed(&mut self, public: &mut HttpConnection, logs_out: bool) -> Option<()> {
        for _ in 0..3 {
            self.unanswered = Some(Call::Refresh);
            let (status, answer) = refresh(public, self.newest(), self.newest()).await?;
            assert_eq!(status, 200, "{answer}");
            self.pairs.push(TokenPair::from_json(&answer));
            self.unanswered = None;
        }
        if logs_out {
            self.unanswered = Some(Call::Revoke);
            let (status, answer) = revoke(public, self.newest()).await?;
            assert_eq!(status, 200, "{answer}");
            self.revoked = true;
            self.unanswered = None;
        }
        Some(())
    }
}

pub async fn request_login(admin: &mut HttpConnection, token: &str) -> Option<TokenPair> {
    let login = json!({ "sub": TokenId::random() });
    let (status, answer) = send(admin, Method::POST, "/admin/v1/tokens", token, Some(login)).await?;
    assert_eq!(status, 201, "{answer}");
    Some(TokenPair::from_json(&answer))
}

/// Presents the refresh token of one pair with the access token of another.
pub async fn refresh(public: &mut HttpConnection, presented: &TokenPair, bearer: &TokenPair) -> Option<(u16, Value)> {
    let body = json!({ "refreshToken": presented.refresh });
    send(public, Method::POST, "/user/refresh", &bearer.access, Some(body)).await
}

pub async fn revoke(public: &mut HttpConnection, pair: &TokenPair) -> Option<(u16, Value)> {
    send(public, Method::DELETE, &format!("/token/{}", pair.token_id), &pair.access, None).await
}

/// `None` if the response is missing or incomplete.
pub async fn send(
    connection: &mut HttpConnection,
    method: Method,
    path: &str,
    bearer: &str,
    body: Option<Value>,
) -> Option<(u16, Value)> {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {bearer}"));
    let request = request.header("content-type", "application/json").header("host", "localhost");
    let body: Body = body.map_or_else(empty, |body| full(body.to_string()));
    let response = connection.try_send(request.body(body).expect("a request")).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    // The backend's responses are not JSON, and no check reads them.
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}
