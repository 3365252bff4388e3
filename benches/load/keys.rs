//! The certificate and the keys that the gateway and its peers share, and tokens signed with them.
//!
//! The bench signs the tokens itself, in threads and before a clock starts, so that no measured process pays for it.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use bearward::tokens::jwt::{Algorithm, algorithm_name};
use bearward::types::clock::{Clock, SystemClock};
use bearward::types::ids::to_base62;
use bearward::types::secret::write_private;
use jsonwebtoken::{DecodingKey, EncodingKey};
use rustls::RootCertStore;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;

pub const AUDIENCE: &str = "https://api.example";
/// HAProxy reads this text in a quoted string, so it has no character that needs an escape.
pub const SHARED_SECRET: &str = "not-a-secret-at-all-but-long-enough-for-one";

/// Dropping it removes the folder.
pub struct Keys {
    folder: TempDir,
    pub roots: RootCertStore,
    signers: Vec<Signer>,
    /// The key of a client.
    client: Signer,
    /// Number of the next token. Each token has its own.
    next: Cell<u128>,
}

struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
    kid: Value,
    /// The members that a public key must have.
    public: Value,
}

/// A signature, and what is needed to check it.
pub struct Check {
    key: DecodingKey,
    message: Vec<u8>,
    signature: String,
}

impl Keys {
    pub fn make() -> Outcome<Keys> {
        let folder = tempfile::tempdir()?;
        let roots = write_certificate(folder.path())?;
        let mut signers = Vec::new();
        for algorithm in [Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA] {
            signers.push(Signer::make(algorithm, folder.path())?);
        }
        write_private(&folder.path().join("hs256.secret"), SHARED_SECRET.as_bytes())?;
        let client = tempfile::tempdir()?;
        let client = Signer::make(Algorithm::ES256, client.path())?;
        let key = EncodingKey::from_secret(SHARED_SECRET.as_bytes());
        signers.push(Signer { algorithm: Algorithm::HS256, key, kid: Value::Null, public: Value::Null });
        // Starts at 2^64, because the numbers of sessions start at 1.
        Ok(Keys { folder, roots, signers, client, next: Cell::new(1 << 64) })
    }

    /// Contains `certificate.pem`, `key.pem` and `both.pem`; private keys as `es256.pem` and so on; JWKS as
    /// `es256.json` and so on.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The public keys of this algorithm.
    pub fn jwks_file(&self, algorithm: Algorithm) -> PathBuf {
        self.folder().join(algorithm_name(algorithm).to_lowercase()).with_extension("json")
    }

    /// `count` tokens, each of a different session of a different user.
    pub fn tokens(&self, algorithm: Algorithm, count: usize) -> Outcome<Vec<String>> {
        let signer = self.signer(algorithm)?;
        let first = self.next.get();
        self.next.set(first + count as u128);
        in_threads(count, |number| signer.sign(first + number as u128))
    }

    /// The fields of `count` GET requests for `path` with one token, which is bound to the key of the client, and a
    /// proof for each. The key id is the thumbprint of a key.
    ///
    /// To be called when the gateway runs: it rejects proofs of the second in which it began.
    pub fn proven(&self, path: &str, count: usize) -> Outcome<Vec<String>> {
        thread::sleep(Duration::from_secs(1));
        let bound = json!({ "cnf": { "jkt": self.client.kid } });
        let issuer = self.signer(Algorithm::EdDSA)?;
        let token = issuer.sign_with(self.next.replace(self.next.get() + 1), &bound)?;
        let ath = URL_SAFE_NO_PAD.encode(bearward::types::secret::digest(&[token.as_bytes()]));
        let header = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": self.client.public });
        let client = &self.client;
        in_threads(count, |_| {
            let jti = to_base62(&bearward::types::secret::random::<16>(), 22);
            let (url, now) = (format!("http://localhost{path}"), SystemClock.now().as_secs());
            let claims = json!({ "jti": jti, "htm": "GET", "htu": url, "iat": now, "ath": ath });
            let proof = client.sign_segments(&header, &claims)?;
            Ok(format!("Authorization: DPoP {token}\r\nDPoP: {proof}\r\n"))
        })
    }

    /// A bare check of a signature with the key of the client, which is ready.
    pub fn check(&self) -> Outcome<Check> {
        let coordinate = |name: &str| self.client.public[name].as_str().unwrap_or_default();
        let key = DecodingKey::from_ec_components(coordinate("x"), coordinate("y"))?;
        // As long as a proof.
        let message = vec![b'x'; 500];
        let signature = jsonwebtoken::crypto::sign(&message, &self.client.key, Algorithm::ES256)?;
        Ok(Check { key, message, signature })
    }

    /// An ID token of an identity provider. Its keys are in `rs256.json`.
    pub fn id_token(&self, claims: &Value) -> Outcome<String> {
        self.signer(Algorithm::RS256)?.sign_claims("JWT", claims)
    }

    fn signer(&self, algorithm: Algorithm) -> Outcome<&Signer> {
        Ok(self.signers.iter().find(|signer| signer.algorithm == algorithm).ok_or("no key for this algorithm")?)
    }

    /// `count` tokens with random signatures. They are well formed, so that the gateway must check each signature.
    pub fn forgeries(&self, count: usize) -> Outcome<Vec<String>> {
        let good = self.tokens(Algorithm::ES256, 1)?.remove(0);
        let message = good.rsplit_once('.').ok_or("a token without a signature")?.0;
        in_threads(count, |_| {
            let mut signature = [0; 64];
            aws_lc_rs::rand::fill(&mut signature)?;
            Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
        })
    }
}

impl Check {
    /// Checks the signature once. Returns how long that took.
    pub fn time(&self) -> Outcome<Duration> {
        let began = Instant::now();
        let is_valid = jsonwebtoken::crypto::verify(&self.signature, &self.message, &self.key, Algorithm::ES256)?;
        let took = began.elapsed();
        if is_valid { Ok(took) } else { Err("the signature is not valid".into()) }
    }
}

impl Signer {
    fn make(algorithm: Algorithm, folder: &Path) -> Outcome<Signer> {
        let pem = generate_pem(algorithm)?;
        let jwk = SigningKey::from_pem(pem.expose(), algorithm)?.public_jwk();
        let name = algorithm_name(algorithm).to_lowercase();
        write_private(&folder.join(format!("{name}.pem")), pem.expose())?;
        fs::write(folder.join(format!("{name}.json")), json!({ "keys": [jwk] }).to_string())?;
        let key = match algorithm {
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem.expose()),
            Algorithm::ES256 => EncodingKey::from_ec_pem(pem.expose()),
            _ => EncodingKey::from_rsa_pem(pem.expose()),
        };
        let mut public = jwk.clone();
        if let Some(members) = public.as_object_mut() {
            members.retain(|name, _| ["kty", "crv", "x", "y", "n", "e"].contains(&name.as_str()));
        }
        Ok(Signer { algorithm, key: key?, kid: jwk["kid"].clone(), public })
    }

    /// Signs the claims of a token from the gateway, and two more claims that a login adds.
    fn sign(&self, number: u128) -> Outcome<String> {
        self.sign_with(number, &json!({}))
    }

    /// As [`Signer::sign`], with further claims.
    fn sign_with(&self, number: u128, more: &Value) -> Outcome<String> {
        let now = SystemClock.now().as_secs();
        let mut claims = json!({
            "iss": issuer(self.algorithm),
            "sub": format!("user-{number:020x}@example.com"),
            "aud": AUDIENCE,
            "client_id": "web",
            "iat": now,
            "exp": now + 3600,
            "jti": to_base62(&number.to_be_bytes(), 22),
            "scope": "openid profile orders:read orders:write",
            "sid": to_base62(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes(), 22),
            "rgn": 7,
            "name": "A User of the Example",
            "tenant": "c5d9e0a4-6f7b-4f0e-9a39-0f6cf3f2b1de",
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        self.sign_claims("at+jwt", &claims)
    }

    fn sign_claims(&self, kind: &str, claims: &Value) -> Outcome<String> {
        let mut header = json!({ "typ": kind, "alg": algorithm_name(self.algorithm) });
        if self.kid.is_string() {
            header["kid"] = self.kid.clone();
        }
        self.sign_segments(&header, claims)
    }

    fn sign_segments(&self, header: &Value, claims: &Value) -> Outcome<String> {
        let segment = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", segment(header), segment(claims));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, self.algorithm)?;
        Ok(format!("{message}.{signature}"))
    }
}

/// The issuer of each algorithm. That of ES256 is the gateway itself.
pub fn issuer(algorithm: Algorithm) -> String {
    match algorithm {
        Algorithm::ES256 => "https://gateway.example".into(),
        other => format!("https://{}.example", algorithm_name(other).to_lowercase()),
    }
}

/// Calls `one` with each number below `count`, in several threads. Returns the results in order.
fn in_threads(count: usize, one: impl Fn(usize) -> Outcome<String> + Sync) -> Outcome<Vec<String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count.max(1));
    let (one, share) = (&one, count.div_ceil(threads).max(1));
    thread::scope(|scope| {
        let spawn =
            |first| scope.spawn(move || (first..count.min(first + share)).map(one).collect::<Outcome<Vec<_>>>());
        let running: Vec<_> = (0..count).step_by(share).map(spawn).collect();
        let mut all = Vec::with_capacity(count);
        for thread in running {
            all.extend(thread.join().map_err(|_| "a signing thread panicked")??);
        }
        Ok(all)
    })
}

/// Writes a certificate for `localhost`. Returns the root store that trusts it.
fn write_certificate(folder: &Path) -> Outcome<RootCertStore> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    fs::write(folder.join("certificate.pem"), &certificate)?;
    write_private(&folder.join("key.pem"), key.as_bytes())?;
    // HAProxy reads both from one file.
    fs::write(folder.join("both.pem"), certificate + &key)?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    Ok(roots)
}
