//! The authority is away, or answers wrongly: what is there stays, and everything else works.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use rcgen::CertificateParams;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, Error};

use super::authority::Wrong;
use super::{Given, NAME, acme, certificate, issued, shown, some_turns};
use crate::support::certificates::{Authority, set_validity};
use crate::support::wait::eventually_ok;

/// Longer than the longest wait between two attempts, and its random part.
const NEXT_ATTEMPT: Duration = Duration::from_hours(27);

fn alert(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

#[tokio::test]
async fn without_the_authority_only_names_without_a_certificate_wait() {
    let given = Given::start(&acme(&[NAME]), "", |front| front.set_away(true)).await;
    let (gateway, address) = (&given.gateway, given.gateway.tls_address());
    let error = certificate(address, NAME).await.expect_err("there is no certificate");
    assert_eq!(alert(&error), Some(AlertDescription::AccessDenied), "{error:?}");
    assert_eq!(gateway.client().get("/").await.status, 200, "the other listener works");
    gateway.wait_for_metric(&format!("acme_failures{{name=\"{NAME}\"}}"), 1).await;
    let name = shown(gateway).await["acme"][0].clone();
    assert_eq!((name["issued"].clone(), name["failures"].clone()), (false.into(), 1.into()), "{name}");
    assert!(name["error"].as_str().is_some_and(|error| error.contains("does not respond")), "{name}");
    // After a minute, then after five.
    gateway.advance(Duration::from_secs(30));
    some_turns().await;
    assert_eq!(gateway.metric("bearward_acme_orders_total{result=\"failed\"}").await, 1.0);
    given.fails_after(Duration::from_secs(40)).await;
    given.front.set_away(false);
    gateway.advance(Duration::from_mins(6));
    issued(address, NAME).await;
    gateway.wait_for_metric(&format!("acme_failures{{name=\"{NAME}\"}}"), 0).await;
    assert_eq!(given.orders(), 1);
}

#[tokio::test]
async fn a_reload_tries_again_at_once() {
    let given = Given::start(&acme(&[NAME]), "", |front| front.set_away(true)).await;
    given.gateway.wait_for_metric("acme_orders_total{result=\"failed\"}", 1).await;
    given.front.set_away(false);
    given.gateway.running().reload(given.gateway.config()).expect("it reloads");
    issued(given.gateway.tls_address(), NAME).await;
}

/// The gateway has the key of its account, with which it gets another one.
#[tokio::test]
async fn an_account_that_the_authority_has_forgotten_is_made_again() {
    let (mut given, first) = Given::issued().await;
    given.front.forget_all();
    given.fails_after(Duration::from_hours(4 * 365 * 24)).await;
    let address = given.gateway.tls_address();
    assert_eq!(certificate(address, NAME).await.expect("it stays"), first);
    given.gateway.advance(NEXT_ATTEMPT);
    super::renewed(address, NAME, &first).await;
    assert_eq!(given.orders(), 2);
}

/// A certificate for the name, of another authority and key.
fn other_certificate(response: Response<Bytes>) -> Response<Bytes> {
    let folder = tempfile::TempDir::new().expect("a folder");
    Authority::new().sign(NAME).write(folder.path(), "other");
    response.map(|_| std::fs::read(folder.path().join("other.pem")).expect("written").into())
}

fn with_status(mut response: Response<Bytes>, status: StatusCode) -> Response<Bytes> {
    *response.status_mut() = status;
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

fn directory(edit: impl FnOnce(String) -> String) -> impl FnOnce(Response<Bytes>) -> Response<Bytes> {
    |response| {
        let (mut head, body) = response.into_parts();
        head.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(head, edit(String::from_utf8(body.to_vec()).expect("JSON")).into())
    }
}

fn limited(mut response: Response<Bytes>) -> Response<Bytes> {
    response.headers_mut().insert(header::RETRY_AFTER, "18446744073709551615".parse().expect("a value"));
    let problem = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many\u001b[31m orders"}"#;
    with_status(response.map(|_| problem.into()), StatusCode::TOO_MANY_REQUESTS)
}

fn without_length(mut response: Response<Bytes>, body: Vec<u8>) -> Response<Bytes> {
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.map(|_| body.into())
}

/// Each with a part of the error that the operator sees.
const WRONG: &[(Wrong, &str)] = &[
    (("/dir", |response| with_status(response.map(|_| "oops".into()), StatusCode::INTERNAL_SERVER_ERROR)), "JSON"),
    (("/dir", |response| without_length(response, b"[]".to_vec())), "JSON"),
    (("/dir", |response| without_length(response, vec![b' '; 1 << 20])), "larger than"),
    (("/dir", |response| directory(|text| text.replace("https://", "http://"))(response)), "not https://"),
    (("/nonce-plz", |response| with_status(response, StatusCode::NOT_FOUND)), "newNonce"),
    (("/order-plz", |response| with_status(response, StatusCode::BAD_GATEWAY)), "the authority"),
    (("/order-plz", limited), "too many [31m orders"),
    (("/authZ/", |response| directory(|text| text.replace("tls-alpn-01", "dns-01"))(response)), "tls-alpn-01"),
    (("/certZ/", |response| without_length(response, b"no certificate".to_vec())), "not a certificate chain"),
    (("/certZ/", |response| without_length(other_certificate(response), Vec::new())), "not a certificate chain"),
    (("/certZ/", other_certificate_only), "cannot be used"),
    // For the key of the request.
    (("/certZ/", |response| for_key(response, &["other.example"], |_| {})), "has other names"),
    (("/certZ/", |response| for_key(response, &[NAME, "other.example"], |_| {})), "has other names"),
    (("/certZ/", |response| for_key(response, &[], |_| {})), "has other names"),
    (("/certZ/", |response| for_key(response, &[NAME], |cert| set_validity(cert, 0, 86_400))), "not valid now"),
    (("/certZ/", |response| for_key(response, &[NAME], |cert| set_validity(cert, 1 << 33, 1 << 34))), "not valid now"),
    (("/certZ/", long_chain), "too large"),
];

/// A certificate as the authority could have issued it, but for these names.
fn for_key(response: Response<Bytes>, names: &[&str], edit: fn(&mut CertificateParams)) -> Response<Bytes> {
    let leaf = CertificateDer::from_pem_slice(response.body()).expect("a certificate");
    let pem = Authority::new().sign_key_of(&leaf, names, edit);
    without_length(response, pem.into())
}

fn long_chain(response: Response<Bytes>) -> Response<Bytes> {
    let chain = [response.body().to_vec(), Authority::new().pem().repeat(8).into()].concat();
    without_length(response, chain)
}

fn other_certificate_only(response: Response<Bytes>) -> Response<Bytes> {
    let mut other = other_certificate(response);
    other.headers_mut().remove(header::CONTENT_LENGTH);
    other
}

#[tokio::test]
async fn wrong_answers_replace_no_certificate() {
    let (mut given, first) = Given::issued().await;
    let address = given.gateway.tls_address();
    // From now on a renewal is due.
    given.gateway.advance(Duration::from_hours(4 * 365 * 24));
    super::renewed(address, NAME, &first).await;
    let kept = certificate(address, NAME).await.expect("a certificate");
    for (wrong, says) in WRONG {
        given.front.set_wrong(Some(*wrong));
        if wrong.0 == "/dir" {
            // The gateway fetches the directory once.
            given.gateway = given.gateway.restart();
        }
        given.fails_after(NEXT_ATTEMPT).await;
        let error = eventually_ok("the error is shown", async || {
            let name = shown(&given.gateway).await["acme"][0].clone();
            let error = name["error"].as_str().unwrap_or_default().to_owned();
            if error.contains(says) { Ok(error) } else { Err(format!("{}: {error}, not {says}", wrong.0)) }
        })
        .await;
        assert!(!error.contains('\u{1b}') && error.chars().count() <= 400, "{error:?}");
        assert_eq!(certificate(address, NAME).await.expect("it stays"), kept, "{says}");
    }
}

/// Nothing listens at the port where the authority validates names.
#[tokio::test]
async fn a_failed_validation_says_why() {
    let given = Given::start(&acme(&[NAME]), "", |_| {}).await;
    issued(given.gateway.tls_address(), NAME).await;
    let text = given.gateway.configuration().replace(&acme(&[NAME]), &acme(&["nowhere.invalid"]));
    let closed = crate::support::ports::free_port();
    let front = super::authority::Front::start(closed).await;
    let settings = front.settings(given.gateway.path());
    let begin = text.find("[limits]").expect("there is one");
    let end = begin + text[begin..].find("[[route]]").expect("after it");
    let text = format!("{}{settings}{}", &text[..begin], &text[end..]);
    given.gateway.running().reload(given.gateway.parse(&text)).expect("it reloads");
    given.gateway.wait_for_metric("acme_failures{name=\"nowhere.invalid\"}", 1).await;
    let name = shown(&given.gateway).await["acme"][0].clone();
    assert!(name["error"].as_str().is_some_and(|error| error.contains("validate the name: ")), "{name}");
}
