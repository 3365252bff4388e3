//! A small OpenID provider, at which the bench signs in. Every user agrees at once, and is `bench-user`.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bearward::protocols::http::parameters;
use bearward::types::clock::{Clock, SystemClock};
use serde_json::json;

use crate::Outcome;
use crate::client::{Connection, Target};
use crate::keys::Keys;

pub const CLIENT: &str = "bench";

/// A path of [`Provider::configuration`]. It needs a sign-in.
pub const SIGNED_IN: &str = "/signed-in/1k";

/// It runs until the process exits.
pub struct Provider<'k> {
    pub issuer: String,
    keys: &'k Keys,
    /// What the token endpoint responds next.
    id_token: Arc<Mutex<String>>,
}

impl<'k> Provider<'k> {
    pub fn start(keys: &'k Keys) -> Outcome<Provider<'k>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let issuer = format!("http://{}", listener.local_addr()?);
        let id_token = Arc::<Mutex<String>>::default();
        let documents = Documents {
            metadata: json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
                "code_challenge_methods_supported": ["S256"],
            })
            .to_string(),
            keys: fs::read_to_string(keys.folder().join("rs256.json"))?,
            id_token: id_token.clone(),
        };
        let documents = Arc::new(documents);
        thread::Builder::new().name("provider".into()).spawn(move || {
            for connection in listener.incoming().flatten() {
                let documents = documents.clone();
                thread::spawn(move || documents.serve(connection));
            }
        })?;
        Ok(Provider { issuer, keys, id_token })
    }

    /// The tables by which a gateway lets browsers sign in here.
    pub fn configuration(&self) -> String {
        let issuer = &self.issuer;
        format!(
            r#"
[[provider]]
name = "main"
issuer = "{issuer}"
client_id = "{CLIENT}"
client_auth = "none"

[sign_in]
external_urls = ["https://localhost"]

[[route]]
path = "/signed-in/"
upstream = "origin"
sign_in = "main"
"#
        )
    }

    /// Signs in at this address, as a browser does that loads `path`. Returns the value of `Cookie` for further
    /// requests.
    pub fn sign_in(&self, address: SocketAddr, host: &str, path: &str) -> Outcome<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let (mut browser, authorization) = loop {
            let connection = Connection::open(&Target::plain(address))?;
            let mut browser = Browser { connection, host, cookies: Vec::new() };
            match browser.redirect(path) {
                Ok(authorization) => break (browser, authorization),
                Err(error) if Instant::now() > deadline => return Err(error),
                // The gateway may not have read the metadata yet.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let callback = self.agree(&authorization)?;
        browser.redirect(&callback)?;
        Ok(browser.cookie())
    }

    /// The user agrees at the provider. Returns path and query of the callback.
    fn agree(&self, authorization: &str) -> Outcome<String> {
        let query = authorization.split_once("/authorize?").map(|(_, query)| query);
        let query = query.ok_or_else(|| format!("expected a redirect to the provider, got {authorization}"))?;
        let asked = parameters::read(query)?;
        let parameter = |name: &str| asked.get(name).ok_or_else(|| format!("no {name} in {authorization}"));
        let now = SystemClock.now().as_secs();
        let claims = json!({
            "iss": self.issuer, "sub": "bench-user", "aud": CLIENT, "iat": now, "exp": now + 300,
            "nonce": parameter("nonce")?, "email": "user@example.com", "email_verified": true, "name": "A User",
        });
        *self.id_token.lock().unwrap_or_else(PoisonError::into_inner) = self.keys.id_token(&claims)?;
        let (_, back) = parameter("redirect_uri")?.split_once("://").ok_or("the redirect URI is no URL")?;
        let path = back.find('/').map_or("/", |start| &back[start..]);
        Ok(format!("{path}?code=a-code&state={}", parameters::encode(parameter("state")?)))
    }
}

struct Documents {
    metadata: String,
    keys: String,
    id_token: Arc<Mutex<String>>,
}

impl Documents {
    /// Reads each request and responds.
    fn serve(&self, connection: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(connection.try_clone()?);
        let mut writer = connection;
        loop {
            let mut head = Vec::new();
            while !head.last().is_some_and(|line: &String| line.is_empty()) {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                head.push(line.trim_end().to_owned());
            }
            let length =
                head.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            io::copy(&mut (&mut reader).take(length.unwrap_or(0)), &mut io::sink())?;
            let body = self.body(head[0].split(' ').nth(1).unwrap_or_default());
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
            writer.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        }
    }

    fn body(&self, path: &str) -> String {
        match path {
            "/.well-known/openid-configuration" => self.metadata.clone(),
            "/keys" => self.keys.clone(),
            _ => {
                let id_token = self.id_token.lock().unwrap_or_else(PoisonError::into_inner).clone();
                json!({ "access_token": "a", "token_type": "Bearer", "expires_in": 3600, "id_token": id_token })
                    .to_string()
            }
        }
    }
}

struct Browser<'h> {
    connection: Connection,
    host: &'h str,
    cookies: Vec<(String, String)>,
}

impl Browser<'_> {
    /// Loads a page that redirects. Returns its target.
    fn redirect(&mut self, path: &str) -> Outcome<String> {
        let (host, cookie) = (self.host, self.cookie());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nSec-Fetch-Mode: navigate\r\n\
             Sec-Fetch-Dest: document\r\nCookie: {cookie}\r\n\r\n"
        );
        let response = self.connection.exchange(request.as_bytes())?;
        let set: Vec<String> = self.connection.values("set-cookie").map(str::to_owned).collect();
        for field in set {
            let (pair, attributes) = field.split_once(';').unwrap_or((&field, ""));
            let (name, value) = pair.split_once('=').ok_or("a cookie without a value")?;
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() && !attributes.contains("1970") {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        let target = self.connection.values("location").next().map(str::to_owned);
        let body = || String::from_utf8_lossy(&response.body).into_owned();
        Ok(target.ok_or_else(|| format!("expected a redirect from {path}, got {}: {}", response.status, body()))?)
    }

    fn cookie(&self) -> String {
        let pairs: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }
}
