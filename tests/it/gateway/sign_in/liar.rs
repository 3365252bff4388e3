//! A provider that can lie: each response of its endpoints is what the test says.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{APP, CLIENT};
use crate::support::tokens::{Mint, segment};
use crate::support::visitor::{Visitor, parameter};
use crate::support::{ScriptedBackend, TestResponse, gzip};

/// What it says next. Changes of `null` remove a member.
#[derive(Clone, Default)]
pub struct Lies {
    pub header: BTreeMap<&'static str, Value>,
    pub claims: BTreeMap<&'static str, Value>,
    /// Of the token endpoint.
    pub response: BTreeMap<&'static str, Value>,
    pub userinfo: Option<Value>,
    /// Of the response of the token endpoint: status and media type.
    pub head: Option<&'static str>,
    /// Instead of claims from UserInfo: a whole response. With an empty one, UserInfo hangs.
    pub raw_userinfo: Option<&'static str>,
    /// Instead of the response of the token endpoint: a whole response.
    pub raw: Option<&'static str>,
    /// How the ID token is signed.
    pub signature: Signature,
    /// All its responses are compressed, whatever the request accepts.
    pub is_compressed: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub enum Signature {
    #[default]
    Own,
    /// By a key that the provider does not publish.
    OtherKey,
    None,
    /// HMAC with the text of its public key.
    PublicKeyAsSecret,
}

struct Shared {
    /// Further members of the discovery document.
    metadata: Value,
    lies: Lies,
    nonce: String,
    mint: Mint,
    /// Forms that the token endpoint got.
    exchanges: Vec<BTreeMap<String, String>>,
    /// Tokens that were revoked.
    revoked: Vec<String>,
    key_requests: usize,
}

pub struct Liar {
    pub issuer: String,
    shared: Arc<Mutex<Shared>>,
    /// True while the responses of the token endpoint are held back.
    held: watch::Sender<bool>,
    _server: ScriptedBackend,
}

impl Liar {
    /// `metadata`: further members of its discovery document.
    pub fn start(metadata: &Value) -> Liar {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        let issuer = format!("http://{address}");
        let mint = Mint::new(Algorithm::RS256);
        let (lies, nonce, exchanges, revoked, key_requests) = Default::default();
        let metadata = metadata.clone();
        let shared = Shared { metadata, lies, nonce, mint, exchanges, revoked, key_requests };
        let shared = Arc::new(Mutex::new(shared));
        let served = shared.clone();
        let held = watch::Sender::new(false);
        let holds = held.subscribe();
        let server = ScriptedBackend::on(socket, move |mut wire, _| {
            let (shared, mut holds) = (served.clone(), holds.clone());
            async move {
                while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                    let length = head
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                    let body = wire.read_bytes(length.map_or(0, |length| length.parse().expect("a number"))).await;
                    let path = head.split(' ').nth(1).expect("a path").to_owned();
                    let response = answer(&path, &String::from_utf8_lossy(&body), address, &shared);
                    if path == "/token" {
                        let _ = holds.wait_for(|held| !held).await;
                    }
                    wire.send(response).await;
                }
            }
        });
        Liar { issuer, shared, held, _server: server }
    }

    pub fn tell(&self, lies: Lies) {
        self.shared.lock().expect("unpoisoned").lies = lies;
    }

    /// Changes the further members of its discovery document.
    pub fn announce(&self, metadata: &Value) {
        self.shared.lock().expect("unpoisoned").metadata = metadata.clone();
    }

    /// Holds the responses of its token endpoint back, or no longer.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// From now on, it signs with another key of the same name, and publishes that one alone.
    pub fn replace_key(&self) {
        let mut shared = self.shared.lock().expect("unpoisoned");
        shared.mint = Mint::new(Algorithm::RS256).named(&shared.mint.kid);
    }

    /// The tokens that were revoked at `/revoke`.
    pub fn revoked(&self) -> Vec<String> {
        self.shared.lock().expect("unpoisoned").revoked.clone()
    }

    /// How often its keys were fetched.
    pub fn key_requests(&self) -> usize {
        self.shared.lock().expect("unpoisoned").key_requests
    }

    /// The forms that its token endpoint got.
    pub fn exchanges(&self) -> Vec<BTreeMap<String, String>> {
        self.shared.lock().expect("unpoisoned").exchanges.clone()
    }

    /// The browser is at the provider and agrees: the URL that it goes back to. Keeps the nonce for the ID token.
    pub fn agree(&self, authorization: &str) -> String {
        self.shared.lock().expect("unpoisoned").nonce = parameter(authorization, "nonce").expect("a nonce");
        let [back, state] = ["redirect_uri", "state"].map(|name| parameter(authorization, name).expect("a parameter"));
        format!("{back}?code=a-code&state={state}")
    }

    /// A sign-in up to the response to the callback. `change`: what happens to its URL.
    pub async fn sign_in(&self, visitor: &mut Visitor, change: impl FnOnce(String) -> String) -> TestResponse {
        let out = visitor.navigate_until(&format!("{APP}/orders"), &self.issuer).await;
        visitor.load(&change(self.agree(&out))).await
    }
}

fn answer(path: &str, body: &str, address: SocketAddr, shared: &Mutex<Shared>) -> Vec<u8> {
    let response = plain_answer(path, body, address, shared);
    if shared.lock().expect("unpoisoned").lies.is_compressed { compressed(&response) } else { response.into_bytes() }
}

fn compressed(response: &str) -> Vec<u8> {
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    let body = gzip(body.as_bytes());
    let (status, _) = head.split_once("\r\nContent-Length").expect("page_with writes it last");
    let head = format!("{status}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

fn plain_answer(path: &str, body: &str, address: SocketAddr, shared: &Mutex<Shared>) -> String {
    let issuer = format!("http://{address}");
    let mut shared = shared.lock().expect("unpoisoned");
    let lies = shared.lies.clone();
    match path {
        "/.well-known/openid-configuration" => {
            let mut document = json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
                "code_challenge_methods_supported": ["S256"],
            });
            for (name, value) in shared.metadata.as_object().expect("an object") {
                document[name] =
                    json!(value.as_str().map_or(value.clone(), |text| json!(text.replace("ISSUER", &issuer))));
            }
            page(&document.to_string())
        }
        "/keys" => {
            shared.key_requests += 1;
            page(&shared.mint.jwks())
        }
        "/userinfo" => match lies.raw_userinfo {
            Some(raw) => raw.to_owned(),
            None => page(&lies.userinfo.unwrap_or_default().to_string()),
        },
        "/revoke" => {
            let form = bearward::protocols::http::parameters::read(body).expect("a form");
            shared.revoked.push(form["token"].clone());
            page("{}")
        }
        "/token" => {
            shared.exchanges.push(bearward::protocols::http::parameters::read(body).expect("a form"));
            if let Some(raw) = lies.raw {
                return raw.to_owned();
            }
            let mut response = json!({
                "access_token": "an-access-token", "token_type": "Bearer", "expires_in": 600,
                "id_token": id_token(&issuer, &shared.nonce, &shared.mint, &lies),
            });
            change(&mut response, &lies.response);
            page_with(lies.head.unwrap_or(GOOD), &response.to_string())
        }
        _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
    }
}

fn id_token(issuer: &str, nonce: &str, mint: &Mint, lies: &Lies) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let mut claims = json!({
        "iss": issuer, "sub": "alice", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce,
        "email": "alice@ours.example", "email_verified": true, "name": "Alice", "preferred_username": "alice",
    });
    change(&mut claims, &lies.claims);
    let mut header = json!({ "alg": "RS256", "kid": mint.kid });
    change(&mut header, &lies.header);
    match lies.signature {
        Signature::Own => mint.sign(&header, &claims),
        Signature::OtherKey => Mint::new(Algorithm::RS256).sign(&header, &claims),
        Signature::None => {
            header["alg"] = json!("none");
            format!("{}.{}.", segment(header.to_string()), segment(claims.to_string()))
        }
        Signature::PublicKeyAsSecret => {
            header["alg"] = json!("HS256");
            Mint::hmac(Algorithm::HS256, mint.jwk().to_string().as_bytes()).sign(&header, &claims)
        }
    }
}

fn change(object: &mut Value, changes: &BTreeMap<&'static str, Value>) {
    for (name, value) in changes {
        match value {
            Value::Null => drop(object.as_object_mut().expect("an object").remove(*name)),
            value => object[*name] = value.clone(),
        }
    }
}

const GOOD: &str = "200 OK\r\nContent-Type: application/json";

fn page(body: &str) -> String {
    page_with(GOOD, body)
}

fn page_with(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
