//! A cached token needs no allocation, and a complete request only a few.
//!
//! This is its own test binary, because it replaces the allocator of the whole program to count.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "the numbers are part of the output")]

#[path = "../benches/setup/mod.rs"]
mod setup;

#[path = "../benches/setup/families.rs"]
#[allow(dead_code, reason = "the benches use the rest")]
mod families;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bearward::auth::api_keys::ApiKeys;
use bearward::auth::authenticate::Authenticator;
use bearward::auth::bearer::{BearerToken, TokenLocations};
use bearward::auth::context::AuthContext;
use bearward::auth::handles::{FoundLogin, Handles};
use bearward::auth::login_providers::LoginProviders;
use bearward::auth::proofs::ProofRule;
use bearward::auth::store_reads::StoredCredentialSettings;
use bearward::gateway::route::Route;
use bearward::store::{ProviderLogin, StoreFuture};
use bearward::telemetry::access_log::Record;
use bearward::tokens::family::api_key::generate;
use bearward::tokens::family::handle;
use bearward::tokens::family::refresh_token::Roots;
use bearward::tokens::family::{Family, FamilyOrigin};
use bearward::tokens::jwt::{Algorithm, SignedInAt};
use bearward::types::clock::UnixTime;
use bearward::types::secret::Secret;
use http::{HeaderMap, HeaderValue, Request, header};

use setup::steps::{SampleRequest, Steps};
use setup::{BenchWorker, Mint, NOW};

const REQUESTS: u64 = 10_000;

/// Of the provider at which the browser has signed in.
const ISSUER: &str = "https://login.example";

#[test]
fn authenticating_a_cached_token_allocates_nothing() {
    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let worker = BenchWorker::new();
    let headers = setup::bearer(&mint.token(0));
    assert!(worker.authenticate(&authenticator, &headers).is_ok(), "the first request verifies the token");

    let counted = allocation_counter::measure(|| {
        for _ in 0..REQUESTS {
            assert!(worker.authenticate(&authenticator, &headers).is_ok());
        }
    });
    assert_eq!(worker.0.metrics.token_cache_hits.get(), REQUESTS);
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
}

/// A route with `proof = "off"` pays nothing for proofs, whatever the client sends.
#[test]
fn a_bound_token_costs_no_more_where_proofs_are_off() {
    let (issuer, client) = (Mint::new(Algorithm::ES256), Mint::new(Algorithm::ES256));
    let (authenticator, _) = setup::authenticator(&issuer);
    let worker = BenchWorker::new();
    let bound = issuer.token_with("cnf", client.confirmation());
    for scheme in ["Bearer", "DPoP"] {
        let mut headers = HeaderMap::from_iter([(header::AUTHORIZATION, setup::credentials(scheme, &bound))]);
        headers.insert("dpop", HeaderValue::from_static("no proof"));
        let authenticate = || worker.authenticate_by(&authenticator, &headers, (ProofRule::Off, None)).is_ok();
        assert!(authenticate(), "the first request verifies the token");
        let counted = allocation_counter::measure(|| (0..REQUESTS).for_each(|_| assert!(authenticate())));
        assert_eq!((counted.count_total, counted.bytes_total), (0, 0), "{scheme}");
    }
    assert_eq!(authenticator.proof_verifier.proofs.count(), 0);
}

#[test]
fn authenticating_a_known_api_key_allocates_and_reads_nothing() {
    let (mut authenticator, _) = setup::authenticator(&Mint::new(Algorithm::ES256));
    let family = families::family(NOW);
    let (text, hash) = generate(family.id);
    let family = Family { key_hash: Some(hash), ..family };
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    let find = Arc::new(move |_| -> StoreFuture<Option<Family>> {
        counter.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Some(family.clone()))))
    });
    let minute = Duration::from_mins(1);
    let settings =
        StoredCredentialSettings { audience: vec![setup::AUDIENCE.into()], lifetime: minute, timeout: minute };
    authenticator.api_keys = Arc::new(ApiKeys::new(settings, find));
    let worker = BenchWorker::new();
    let context = AuthContext { api_keys: true, ..worker.context(NOW) };
    let bearer = BearerToken::from_text(&text, 100).expect("short");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    assert!(runtime.block_on(authenticator.authenticate(bearer, &context)).is_ok(), "the first request reads it");

    let counted = allocation_counter::measure(|| {
        for _ in 0..REQUESTS {
            assert!(setup::run_ready(authenticator.authenticate(bearer, &context)).is_ok());
        }
    });
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[test]
fn a_request_with_a_known_cookie_allocates_and_reads_nothing() {
    let (mut authenticator, _) = setup::authenticator(&Mint::new(Algorithm::ES256));
    let (text, reads) = signed_in(&mut authenticator);
    let worker = BenchWorker::new();
    let context = AuthContext { provider: Some("main"), ..worker.context(NOW) };
    let request = Request::get("/").header("cookie", format!("a=1; __Host-bearward={text}; b=2")).body(());
    let request = request.expect("a request");
    let places = TokenLocations { sign_in: true, ..TokenLocations::default() };
    let authenticate = async || {
        let Ok(found) = places.find(&request, 8192) else { panic!("a cookie") };
        authenticator.authenticate(found.token(), &context).await.is_ok()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    assert!(runtime.block_on(authenticate()), "the first request reads it");

    let counted = allocation_counter::measure(|| {
        for _ in 0..REQUESTS {
            assert!(setup::run_ready(authenticate()));
        }
    });
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

/// Gives the authenticator the login of a browser. Returns its handle, and how often the login was read.
fn signed_in(authenticator: &mut Authenticator) -> (String, Arc<AtomicUsize>) {
    let origin = FamilyOrigin { issuer: ISSUER.into(), subject: "alice".into(), session: None, dated: NOW };
    let family = Family { origin: Some(origin), ..families::family(NOW) };
    let roots = Roots::new((family.root, Secret::new(vec![7; 32])), Vec::new());
    let text = handle::of(&family, &roots).expect("the root is known");
    let login = ProviderLogin {
        provider: "main".into(),
        root: family.root,
        sealed: Vec::new(),
        version: 0,
        due: UnixTime::MAX,
        claimed: true,
    };
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    let find = Arc::new(move |_| -> StoreFuture<FoundLogin> {
        counter.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Some((family.clone(), login.clone())))))
    });
    let minute = Duration::from_mins(1);
    let settings =
        StoredCredentialSettings { audience: vec![setup::AUDIENCE.into()], lifetime: minute, timeout: minute };
    let providers = LoginProviders::default();
    providers.replace(vec![SignedInAt { provider: "main".into(), issuer: ISSUER.into() }]);
    authenticator.handles = Arc::new(Handles::new(settings, Arc::new(roots), find, Arc::new(providers)));
    (text, reads)
}

/// Each revocation changes the epoch, so that the next request with a cached token checks the revocation set again.
#[test]
fn checking_the_revocation_set_again_allocates_nothing() {
    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let worker = BenchWorker::new();
    let headers = setup::bearer(&mint.token(0));
    assert!(worker.authenticate(&authenticator, &headers).is_ok(), "the first request verifies the token");

    let mut allocations = 0;
    for other in 1..=1_000 {
        authenticator.known.revocations.enforce(&setup::revocation(other));
        let authenticate = || assert!(worker.authenticate(&authenticator, &headers).is_ok());
        allocations += allocation_counter::measure(authenticate).count_total;
    }
    assert_eq!(allocations, 0);
}

/// The access-log record, the request id, and two for the headers that the gateway adds. The `Connection` header of a
/// browser needs three more: the list of its names, one name, and the list of removed headers. The cookies that are
/// left when that of a sign-in is removed need two.
#[test]
fn a_complete_request_allocates_little() {
    let mint = Mint::new(Algorithm::ES256);
    let (mut authenticator, hygiene) = setup::authenticator(&mint);
    let (handle, reads) = signed_in(&mut authenticator);
    let places = TokenLocations { sign_in: true, ..TokenLocations::default() };
    let sign_in = Route { path: "/".into(), sign_in: Some("main".into()), places, ..Route::everything() };
    let steps = Steps::new(&mint);
    let signing_in = Steps::with((authenticator, hygiene), &[sign_in], 1);
    let token = mint.token(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    for (name, steps, sent, max) in [
        ("plain", &steps, SampleRequest::plain(&token), 4.0),
        ("browser", &steps, SampleRequest::browser(&token), 7.0),
        ("signed-in browser", &signing_in, SampleRequest::signed_in(&handle), 9.0),
    ] {
        assert!(steps.run(&mut sent.to_request()).is_ok(), "the first request verifies the token");
        let mut sum = allocation_counter::AllocationInfo::default();
        for _ in 0..REQUESTS {
            let mut request = sent.to_request();
            sum += allocation_counter::measure(|| assert!(steps.run(&mut request).is_ok()));
        }
        let (count, bytes) = (sum.count_total as f64 / REQUESTS as f64, sum.bytes_total / REQUESTS);
        println!("{name} request: {count} allocations, {bytes} bytes; a record has {} bytes", size_of::<Record>());
        assert!(count <= max, "{name}: {count}");
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}
