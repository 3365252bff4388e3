//! `WWW-Authenticate`: what a client must be able to read (RFC 9449 section 7).

use super::{Stage, presenting};

fn challenges(response: &crate::support::TestResponse) -> Vec<String> {
    let fields = response.headers.get_all("www-authenticate").iter();
    fields.map(|value| value.to_str().expect("text").to_owned()).collect()
}

const ALGORITHMS: &str = "algs=\"ES256 ES384 EdDSA Ed25519 RS256 RS384 RS512 PS256 PS384 PS512\"";
const BEARER: &str = "Bearer realm=\"bearward\"";

#[tokio::test]
async fn a_route_names_the_schemes_that_it_takes() {
    let stage = Stage::new(
        "[[route]]\npath = \"/\"\n[[route]]\npath = \"/off\"\nproof = \"off\"\n[[route]]\npath = \"/required\"\nproof = \
         \"required\"\n",
    );
    let token = stage.token();
    let dpop = format!("DPoP {ALGORITHMS}");
    let client = stage.gateway.client();
    assert_eq!(challenges(&client.get("/").await), [BEARER, &dpop]);
    assert_eq!(challenges(&client.get("/off").await), [BEARER]);
    assert_eq!(challenges(&client.get("/required").await), [&*dpop]);

    let with_error = |error: &str, description: &str| {
        format!("DPoP error=\"{error}\", error_description=\"{description}\", {ALGORITHMS}")
    };
    let tried = presenting(client.clone(), &token, "x.y.z").get("/").await;
    let malformed = with_error("invalid_dpop_proof", "the DPoP proof is malformed");
    assert_eq!(challenges(&tried), [&*malformed, BEARER]);
    let expired = stage.issuer.with_claims(stage.now(), serde_json::json!({ "exp": stage.now() - 60 }));
    let tried = presenting(client.clone(), &expired, "x.y.z").get("/").await;
    assert_eq!(challenges(&tried), [&*with_error("invalid_token", "the token expired"), BEARER]);
    let tried = client.clone().bearer(&expired).get("/required").await;
    assert_eq!(challenges(&tried), [with_error("invalid_token", "the token expired")]);
    let tried = challenges(&client.bearer(&expired).get("/").await);
    assert!(
        tried[0].starts_with("Bearer realm=\"bearward\", error=\"invalid_token\"") && tried[1] == dpop,
        "{tried:?}"
    );
}

/// Pages of another origin send proofs, and read why one was rejected.
#[tokio::test]
async fn a_page_of_another_origin_can_send_proofs() {
    let stage = Stage::new("[cors]\norigins = [\"https://app.example\"]\n");
    let preflight = stage
        .gateway
        .client()
        .header("origin", "https://app.example")
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", "authorization,dpop");
    let response = preflight.send(http::Method::OPTIONS, "/", "".into()).await;
    let allowed = response.header("access-control-allow-headers").expect("headers are allowed").to_lowercase();
    assert!(allowed.contains("dpop") || allowed == "*", "{allowed}");
    let rejected = presenting(stage.gateway.client(), &stage.token(), "x").header("origin", "https://app.example");
    let rejected = rejected.get("/").await;
    let exposed = rejected.header("access-control-expose-headers").expect("exposed");
    assert!(exposed.contains("WWW-Authenticate"), "{exposed}");
}
