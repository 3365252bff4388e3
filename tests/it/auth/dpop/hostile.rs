//! A table of proofs that must not pass, and of their neighbours that must. The backend sees only the latter.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};

use super::rows::ROWS;
use super::{HOST, Stage};
use crate::support::prover::{Draft, Prover, hash_of};
use crate::support::tokens::{Mint, segment};

/// A request in the making: a good one, until a row changes it.
pub struct Case {
    pub scheme: &'static str,
    pub token: String,
    pub draft: Draft,
    /// Signs the draft.
    pub signer: Signer,
    /// Changes the signed proof to the fields that are sent.
    pub fields: fn(String) -> Vec<String>,
    pub method: Method,
    pub path: &'static str,
}

pub enum Signer {
    /// The key of the token.
    Own,
    /// This key, with its algorithm.
    Key(Box<Mint>),
    /// No key: the signature is this text.
    Text(&'static str),
    /// The own key, over these texts instead of the draft.
    Texts(String, String),
}

/// What rows can use.
pub struct Parties {
    pub now: u64,
    pub issuer: Mint,
    pub own: Prover,
    pub other: Prover,
    pub older_token: String,
}

/// The name, what is changed, and the reason of the rejection; an empty one if the request passes.
pub type Row = (&'static str, fn(&Parties, &mut Case), &'static str);

impl Case {
    fn new(parties: &Parties) -> Case {
        let token = parties.bound_to(json!({ "jkt": parties.own.thumbprint() }));
        let draft = parties.own.draft("GET", &format!("http://{HOST}/a"), &token, parties.now);
        let fields = |proof| vec![proof];
        Case { scheme: "DPoP", token, draft, signer: Signer::Own, fields, method: Method::GET, path: "/a" }
    }

    pub fn header(&mut self, name: &str, value: Value) {
        set(&mut self.draft.header, name, value);
    }

    pub fn claim(&mut self, name: &str, value: Value) {
        set(&mut self.draft.claims, name, value);
    }

    pub fn jwk(&mut self, name: &str, value: Value) {
        set(&mut self.draft.header["jwk"], name, value);
    }

    /// Another token. The proof is for it.
    pub fn token(&mut self, token: String) {
        self.draft.claims["ath"] = json!(hash_of(&token));
        self.token = token;
    }

    /// The client has this key, and its token is bound to it.
    pub fn key(&mut self, parties: &Parties, prover: Prover) {
        self.header("alg", json!(crate::support::tokens::name(prover.key.algorithm)));
        self.header("jwk", prover.jwk());
        self.token(parties.bound_to(json!({ "jkt": prover.thumbprint() })));
        self.signer = Signer::Key(Box::new(prover.key));
    }

    fn proof(&self, parties: &Parties) -> String {
        let message =
            |draft: &Draft| format!("{}.{}", segment(draft.header.to_string()), segment(draft.claims.to_string()));
        match &self.signer {
            Signer::Own => parties.own.sign(&self.draft),
            Signer::Key(key) => key.sign_message(&message(&self.draft)),
            Signer::Text(signature) => format!("{}.{signature}", message(&self.draft)),
            Signer::Texts(header, claims) => parties.own.key.sign_text(header, claims),
        }
    }
}

impl Parties {
    pub fn bound_to(&self, cnf: Value) -> String {
        self.issuer.with_claims(self.now, json!({ "cnf": cnf }))
    }
}

/// `null` removes the member. For a member that is null, rows write the JSON themselves.
fn set(object: &mut Value, name: &str, value: Value) {
    let members = object.as_object_mut().expect("an object");
    match value {
        Value::Null => drop(members.remove(name)),
        value => drop(members.insert(name.to_owned(), value)),
    }
}

/// The proof with another last segment.
pub fn with_signature(proof: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> String {
    let (message, signature) = proof.rsplit_once('.').expect("a signature");
    let bytes = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(change(bytes)))
}

#[tokio::test]
async fn no_hostile_proof_reaches_a_backend() {
    assert!(ROWS.len() >= 220, "{}", ROWS.len());
    let stage = Stage::new("");
    // A proof that is a minute old is not older than the gateway.
    stage.gateway.advance(std::time::Duration::from_secs(61));
    let older_token = stage.token();
    let parties =
        Parties { now: stage.now(), older_token, issuer: stage.issuer, own: stage.prover, other: Prover::new() };
    for (number, (name, change, reason)) in ROWS.iter().enumerate() {
        let mut case = Case::new(&parties);
        change(&parties, &mut case);
        let proof = case.proof(&parties);
        let mut client = stage.gateway.client().header("authorization", &format!("{} {}", case.scheme, case.token));
        for field in (case.fields)(proof) {
            client = client.header("dpop", &field);
        }
        // Finds the line of this request.
        let path = format!("{}?row={number}", case.path);
        stage.upstream.forget();
        let response = client.send(case.method.clone(), &path, "".into()).await;
        let arrived = stage.upstream.seen().len();
        if reason.is_empty() {
            assert_eq!((response.status.as_u16(), arrived), (200, 1), "{name}: {response:?}");
            continue;
        }
        assert_eq!(arrived, 0, "{name}");
        let error = if ["bound_to_key", "certificate_other", "token_not_bound", "proof_key"].contains(reason) {
            "invalid_token"
        } else {
            "invalid_dpop_proof"
        };
        assert_eq!((response.status.as_u16(), &*response.error()), (401, error), "{name}: {response:?}");
        let challenge = response.header("www-authenticate").expect("a challenge");
        assert!(challenge.starts_with(&format!("DPoP error=\"{error}\"")), "{name}: {challenge}");
        let id = response.json()["requestId"].as_str().expect("an id").to_owned();
        let line = stage.gateway.log_line(|line| line["request_id"] == id.as_str()).await;
        assert_eq!(line["reason"], *reason, "{name}: {line}");
    }
}
