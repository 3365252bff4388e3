//! Reports of identity providers: logout tokens and security events end sessions and open streams.

mod logout;
mod poll;
mod push;
mod real_provider;
pub mod transmitter;
mod verify;

pub use push::push;

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use crate::support::jwks::KeyServer;
use crate::support::tokens::Mint;
use crate::support::{Gateway, Upstream};

/// A gateway that polls security events, and so has all metrics of a stream.
pub fn gateway_with_a_stream(upstream: &Upstream) -> Gateway {
    let signer = Signer::start();
    let polls = format!("poll_url = \"{}\"", signer.server.url("/poll"));
    transmitter::gateway(upstream, &transmitter::sections(&signer, &polls))
}

/// A provider of the test: its keys, and the tokens that it signs.
pub struct Signer {
    server: KeyServer,
    mint: Mint,
}

impl Signer {
    pub fn start() -> Signer {
        let mint = Mint::new(Algorithm::ES256);
        let server = KeyServer::start(&[&mint]);
        Signer { server, mint }
    }

    fn issuer(&self) -> String {
        self.server.url("")
    }

    /// Signs these claims as a token of this type.
    fn sign(&self, typ: &str, claims: &Value) -> String {
        let mut header = self.mint.header();
        header["typ"] = typ.into();
        self.mint.sign(&header, claims)
    }

    /// An access token of this user and session, from now.
    pub fn access_token(&self, now: u64, subject: &str, session: Option<&str>) -> String {
        let mut changes =
            json!({ "iss": self.issuer(), "sub": subject, "jti": format!("{subject} {session:?} {now}") });
        if let Some(session) = session {
            changes["sid"] = session.into();
        }
        self.mint.with_claims(now, changes)
    }

    /// `[[issuer]]` with this provider, so that its access tokens are accepted.
    fn issuer_section(&self) -> String {
        let (issuer, keys) = (self.issuer(), self.server.url("/keys"));
        format!(
            "[[issuer]]\nissuer = \"{issuer}\"\naudience = [\"https://api.example\"]\nalgorithms = [\"ES256\"]\n\
             jwks_url = \"{keys}\"\n"
        )
    }
}

/// `object` with these changes. `null` removes a member.
fn changed(mut object: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => object.as_object_mut().expect("an object").remove(name),
            value => object.as_object_mut().expect("an object").insert(name.clone(), value.clone()),
        };
    }
    object
}
