//! Shared set-up of the benches: issuers and their tokens, and the gateway's steps, connected as in a running gateway.
//! No bench times this code.

#![allow(dead_code, reason = "each bench uses a part")]
#![allow(unreachable_pub, reason = "`pub` means visible to the benches; nothing is exported")]

pub mod steps;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::auth::authenticate::{Authenticator, Caller};
use bearward::auth::bad_signatures::BadSignatures;
use bearward::auth::bearer;
use bearward::auth::context::AuthContext;
use bearward::auth::identity::Identity;
use bearward::auth::keyring::{Keyring, Keys, OwnIssuer};
use bearward::auth::known_tokens::KnownTokens;
use bearward::auth::proof_verifier::ProofVerifier;
use bearward::auth::proofs::{OwnHosts, PresentedProof, ProofRule, Proofs};
use bearward::auth::revocations::Revocations;
use bearward::auth::signature_queue::SignatureQueue;
use bearward::auth::token_cache::TokenCache;
use bearward::gateway::streams::{Streams, TokenChecks};
use bearward::gateway::worker::Worker;
use bearward::limits::concurrency::ConcurrencyLimit;
use bearward::limits::limiter::Rate;
use bearward::protocols::http::headers::Hygiene;
use bearward::protocols::http::removed_fields::FieldRules;
use bearward::telemetry::metrics::Metrics;
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use bearward::tokens::jwt::verify::TrustedIssuer;
use bearward::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer, NeededAudience, algorithm_name};
use bearward::types::clock::{SystemClock, UnixTime};
use bearward::types::ids::{RequestIds, TokenId, to_base62};
use bearward::types::reject::Reject;
use bearward::types::step::StepReporter;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jsonwebtoken::{DecodingKey, EncodingKey};
use serde_json::{Value, json};

pub const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);
const ISSUER: &str = "https://gateway.example";
pub const AUDIENCE: &str = "https://api.example";

/// Returns true if each bench runs once, to check that it works (`cargo bench -- --test`). Large sets are then small.
pub fn in_brief() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// An issuer that signs with one algorithm. Its tokens have the claims of the gateway's own tokens.
pub struct Mint {
    algorithm: Algorithm,
    key: EncodingKey,
    jwk: Value,
}

impl Mint {
    pub fn new(algorithm: Algorithm) -> Mint {
        use Algorithm::*;
        if algorithm == HS256 {
            let secret = b"a secret of exactly thirty-two b";
            let jwk = json!({ "kty": "oct", "kid": "shared", "alg": "HS256", "k": URL_SAFE_NO_PAD.encode(secret) });
            return Mint { algorithm, key: EncodingKey::from_secret(secret), jwk };
        }
        // The same RSA key signs RS256 and PS256. Only `alg` of its JWK differs.
        let kind = if algorithm == PS256 { RS256 } else { algorithm };
        let pem = generate_pem(kind).expect("a key");
        let mut jwk = SigningKey::from_pem(pem.expose(), kind).expect("reads its own key").public_jwk();
        jwk["alg"] = json!(algorithm_name(algorithm));
        let key = match algorithm {
            ES256 | ES384 => EncodingKey::from_ec_pem(pem.expose()),
            EdDSA => EncodingKey::from_ed_pem(pem.expose()),
            _ => EncodingKey::from_rsa_pem(pem.expose()),
        };
        Mint { algorithm, key: key.expect("reads its own key"), jwk }
    }

    pub fn trusted(&self) -> TrustedIssuer {
        let algorithms = vec![self.algorithm];
        let keys = KeySet::from_jwks(&json!({ "keys": [self.jwk] }).to_string(), &algorithms).expect("a strong key");
        let policy = Issuer {
            issuer: ISSUER.into(),
            audience: Audience::OneOf(vec![AUDIENCE.into()]),
            resources: Vec::new(),
            algorithms,
            types: vec!["at+jwt".into()],
            clock_skew: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(3600),
            require_subject: true,
            confirmation: Confirmation::Check,
            own: true,
        };
        TrustedIssuer { policy: Arc::new(policy), keys: Arc::new(keys) }
    }

    /// A valid token of user `number`.
    pub fn token(&self, number: u32) -> String {
        self.sign(&claims(number))
    }

    /// A token with one claim changed.
    pub fn token_with(&self, claim: &str, value: Value) -> String {
        let mut claims = claims(0);
        claims[claim] = value;
        self.sign(&claims)
    }

    /// A well-formed token with the signature of another token.
    pub fn forged(&self) -> String {
        let (good, other) = (self.token(0), self.token(1));
        let (message, signature) = (good.rsplit_once('.'), other.rsplit_once('.'));
        format!("{}.{}", message.expect("three segments").0, signature.expect("three segments").1)
    }

    /// `cnf` of a token that is bound to this key.
    pub fn confirmation(&self) -> Value {
        // The id of a key of ours is its thumbprint.
        json!({ "jkt": self.jwk["kid"] })
    }

    /// The public key, for ES256.
    pub fn decoding_key(&self) -> DecodingKey {
        let coordinate = |name: &str| self.jwk[name].as_str().expect("a coordinate");
        DecodingKey::from_ec_components(coordinate("x"), coordinate("y")).expect("a key")
    }

    /// A DPoP proof by this key.
    pub fn proof(&self, claims: &Value) -> String {
        let mut public = self.jwk.clone();
        public.as_object_mut().expect("an object").retain(|name, _| ["kty", "crv", "x", "y"].contains(&name.as_str()));
        let header = json!({ "typ": "dpop+jwt", "alg": algorithm_name(self.algorithm), "jwk": public });
        self.sign_segments(&header, claims)
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({ "typ": "at+jwt", "alg": algorithm_name(self.algorithm), "kid": self.jwk["kid"] });
        self.sign_segments(&header, claims)
    }

    fn sign_segments(&self, header: &Value, claims: &Value) -> String {
        let segment = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", segment(header), segment(claims));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, self.algorithm);
        format!("{message}.{}", signature.expect("a signature"))
    }
}

/// The claims of a token from the gateway, and two more claims that a login adds.
fn claims(number: u32) -> Value {
    let issued = NOW.as_secs() - 60;
    json!({
        "iss": ISSUER,
        "sub": format!("user-{number:06}@example.com"),
        "aud": AUDIENCE,
        "client_id": "web",
        "iat": issued,
        "exp": issued + 900,
        "jti": to_base62(&(u128::from(number) << 64).to_be_bytes(), 22),
        "scope": "openid profile orders:read orders:write",
        "sid": family(number),
        "rgn": 7,
        "name": "A User of the Example",
        "tenant": "c5d9e0a4-6f7b-4f0e-9a39-0f6cf3f2b1de",
    })
}

/// The family of user `number`. Ids are spread over all bits, like real ones.
pub fn family(number: u32) -> TokenId {
    TokenId::from_bytes((u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

/// The revocation of that family. It lasts as long as an access token of it can live.
pub fn revocation(number: u32) -> Revocation {
    let until = NOW + Duration::from_secs(930);
    Revocation { sequence: u64::from(number), what: Revoked::Family(family(number)), at: NOW, until }
}

/// The authenticator with the gateway's default limits, and the header rules that belong to it.
pub fn authenticator(mint: &Mint) -> (Authenticator, Arc<Hygiene>) {
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let signing = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("reads its own key");
    let name = |name| Some(HeaderName::from_static(name));
    let identity = Identity {
        subject: name("x-auth-subject"),
        scope: name("x-auth-scope"),
        token_id: name("x-auth-token-id"),
        issuer: name("x-auth-issuer"),
        claims: Vec::new(),
        certificate: Default::default(),
    };
    let hygiene = Arc::new(Hygiene::new(identity.names(), &FieldRules::default()));
    let authenticator = Authenticator {
        known: KnownTokens {
            keyring: Arc::new(Keyring::new(Keys::new(OwnIssuer::single_key(mint.trusted(), signing)))),
            revocations: Arc::new(Revocations::new()),
            token_cache: Arc::new(TokenCache::new(64 << 20)),
            seen_generations: Arc::default(),
            renewals: Arc::default(),
            lookups: Default::default(),
            identity,
        },
        api_keys: Arc::default(),
        introspection: Arc::default(),
        handles: Arc::default(),
        proof_verifier: ProofVerifier {
            proofs: Proofs::of_process(UnixTime::default()),
            own_hosts: OwnHosts::default(),
            max_used: 1_000_000,
        },
        freshness: None,
        token_size: 8 << 10,
    };
    (authenticator, hygiene)
}

/// A worker without connections.
pub struct BenchWorker(pub Worker);

impl BenchWorker {
    pub fn new() -> BenchWorker {
        BenchWorker::numbered(0)
    }

    pub fn numbered(number: usize) -> BenchWorker {
        // No limit, so that each forged token is rejected for its signature.
        let rate = Rate { burst: u32::MAX, interval: Duration::ZERO };
        let metrics = Metrics::new(1).worker(0);
        let pem = generate_pem(Algorithm::ES256).expect("a key");
        let signing = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("reads its own key");
        let checks = TokenChecks {
            clock: Arc::new(SystemClock),
            revocations: Arc::default(),
            keyring: Arc::new(Keyring::new(Keys::new(OwnIssuer::single_key(
                Mint::new(Algorithm::ES256).trusted(),
                signing,
            )))),
            introspected_tokens: Arc::default(),
            login_providers: Arc::default(),
            renewals: Arc::default(),
            routes: Arc::default(),
            freshness: None,
        };
        BenchWorker(Worker {
            number,
            request_ids: RequestIds::new(),
            metrics: metrics.clone(),
            streams: Streams::new(checks, metrics),
            bad_signatures: Arc::new(BadSignatures::new(rate, rate, 1)),
            signature_queue: SignatureQueue::new(),
            log: None,
            tracer: None,
            rejections: None,
            concurrency: ConcurrencyLimit::new(0, 0, 1),
        })
    }

    /// As [`BenchWorker::authenticate`], on a route with this rule, also for a token in the scheme DPoP.
    pub fn authenticate_by(
        &self,
        authenticator: &Authenticator,
        headers: &HeaderMap,
        (proof, presented): (ProofRule, Option<PresentedProof<'_>>),
    ) -> Result<Caller, Reject> {
        let bearer = bearer::find_with_scheme(headers, authenticator.token_size)?;
        run_ready(authenticator.authenticate(bearer, &AuthContext { proof, presented, ..self.context(NOW) }))
    }

    pub fn context(&self, now: UnixTime) -> AuthContext<'_> {
        AuthContext {
            now,
            clock: &SystemClock,
            payer: self.0.bad_signatures.of_address([192, 0, 2, 7].into()),
            signature_queue: &self.0.signature_queue,
            metrics: &self.0.metrics,
            serves_stale: None,
            api_keys: false,
            provider: None,
            audience: NeededAudience::Gateway,
            proof: ProofRule::IfBound,
            presented: None,
            rejected_token: None,
            steps: StepReporter::OFF,
        }
    }

    /// Authenticates a request. This never waits, because the signature queue is always free.
    pub fn authenticate(&self, authenticator: &Authenticator, headers: &HeaderMap) -> Result<Caller, Reject> {
        let bearer = bearer::find(headers, authenticator.token_size)?;
        run_ready(authenticator.authenticate(bearer, &self.context(NOW)))
    }
}

/// Runs a future that never waits for another task.
pub fn run_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
            return outcome;
        }
    }
}

/// A value of `Authorization`.
pub fn credentials(scheme: &str, token: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("{scheme} {token}")).expect("a token is ASCII")
}

/// Headers with this token only.
pub fn bearer(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a token is ASCII");
    headers.insert(header::AUTHORIZATION, value);
    headers
}

/// The numbers below `count` in an order that a prefetcher cannot predict. The order is the same in each run.
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    // Sorted by a hash of the number. Knuth's multiplier is odd, so no two numbers have the same hash.
    numbers.sort_by_key(|number| number.wrapping_mul(2_654_435_761));
    numbers
}
