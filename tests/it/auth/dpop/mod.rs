//! DPoP (RFC 9449): a token that is bound to a key is good only with a proof of that key, once.

mod challenges;
mod changes;
mod clients;
mod explained;
mod hostile;
mod hosts;
mod issuing;
mod nonces;
mod own_clients;
mod proxies;
mod replays;
mod replicas;
mod requests;
mod rows;
mod streams;
mod thieves;

use serde_json::json;

use crate::support::prover::Prover;
use crate::support::tokens::Mint;
use crate::support::{Client, Gateway, TestResponse, Upstream};

/// The host of the test client. `https.hosts` names it.
const HOST: &str = "gateway.test";

/// A gateway that accepts the tokens of another issuer, and a client of it with a key of its own.
struct Stage {
    upstream: Upstream,
    gateway: Gateway,
    issuer: Mint,
    prover: Prover,
}

impl Stage {
    /// `more`: begins inside `[[issuer]]`.
    fn new(more: &str) -> Stage {
        let (upstream, issuer) = (Upstream::start(), Mint::new(bearward::tokens::jwt::Algorithm::ES256));
        let gateway = Gateway::with_issuer(&upstream, &issuer, more);
        Stage { upstream, gateway, issuer, prover: Prover::new() }
    }

    fn now(&self) -> u64 {
        self.gateway.now_secs()
    }

    /// A token that is bound to the key of the client.
    fn token(&self) -> String {
        self.issuer.with_claims(self.now(), json!({ "cnf": { "jkt": self.prover.thumbprint() } }))
    }

    fn unbound(&self) -> String {
        self.issuer.valid_token(self.now())
    }

    /// A good proof for `GET http://gateway.test{path}`.
    fn proof(&self, path: &str, token: &str) -> String {
        self.prover.proof("GET", &format!("http://{HOST}{path}"), token, self.now())
    }

    /// Sends a GET with this token and this proof.
    async fn get(&self, path: &str, token: &str, proof: &str) -> TestResponse {
        presenting(self.gateway.client(), token, proof).get(path).await
    }
}

/// A client that sends this token and this proof.
fn presenting(client: Client, token: &str, proof: &str) -> Client {
    client.header("authorization", &format!("DPoP {token}")).header("dpop", proof)
}

/// Waits for the line of a rejected request, and returns its reason.
async fn reason_for(gateway: &Gateway, path: &str) -> String {
    let line = gateway.log_line(|line| line["path"] == path && line["reason"].is_string()).await;
    line["reason"].as_str().expect("text").to_owned()
}
