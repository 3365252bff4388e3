//! The examples: CloudNativePG, Ingress, and the Gateway API with ExternalAuth.

use serde_json::json;

use super::*;
use crate::deploy::chart::pod::{Pod, list};
use crate::deploy::gateway_api;
use crate::deploy::replicas::{VERSIONS, check_manifests};
use crate::support::files::names;
use crate::support::wait::eventually_ok;
use crate::support::{TokenPair, Upstream};

const EXAMPLES: [&str; 3] = ["cloudnativepg", "gateway-api", "ingress"];

fn manifest(example: &str) -> String {
    source::read(format!("{CHART}/examples/{example}.yaml"))
}

#[test]
fn every_example_has_a_test_and_is_on_the_page() {
    let found = names(&source::root().join(CHART).join("examples"));
    let expected = EXAMPLES.map(|example| [format!("{example}.values.yaml"), format!("{example}.yaml")]).concat();
    assert_eq!(found, expected);
    let page = source::read(PAGE);
    for name in found {
        assert!(page.contains(&format!("](chart/examples/{name})")), "{name} is not on the page");
    }
}

/// The files of the pods, the probes, a request with a token and one without.
#[tokio::test]
async fn a_gateway_serves_in_the_pods_of_each_example() {
    let upstream = Upstream::start();
    for name in EXAMPLES {
        let pod = Pod::of_manifest(&example(PROGRAMS[1], name), &upstream);
        let gateway = pod.start().await;
        let kubelet = crate::support::Client::http1(gateway.admin).host(&gateway.admin.to_string());
        for path in pod.probes() {
            eventually_ok(&format!("{name}: {path}"), async || match kubelet.get(&path).await.status.as_u16() {
                200 => Ok(()),
                other => Err(other.to_string()),
            })
            .await;
        }
        let issued = gateway.admin_client().post("/admin/v1/tokens", &json!({ "subject": "alice" })).await;
        let pair = TokenPair::from_json(&issued.json());
        let client = pod.client(&gateway).header("x-forwarded-for", "198.51.100.7");
        let client = client.header("x-forwarded-proto", "https");
        client.get("/orders").await.assert_rejected(401, "unauthorized");
        let answer = client.bearer(&pair.access).get("/orders").await;
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let seen = upstream.seen().pop().expect("it arrived");
        assert_eq!(seen.header("x-auth-subject"), Some("alice"), "{name}");
        let address = if name == "ingress" { "198.51.100.7" } else { "127.0.0.1" };
        assert_eq!(seen.header("x-forwarded-for"), Some(address), "{name}");
    }
}

/// Operators copy the examples.
#[tokio::test]
async fn no_example_has_a_warning() {
    let upstream = Upstream::start();
    for name in EXAMPLES {
        let gateway = Pod::of_manifest(&example(PROGRAMS[1], name), &upstream).start().await;
        let journal = gateway.program.stderr_so_far();
        // The server of the tests has no TLS and no standby, and the collector does not exist. It is the first start.
        let expected = ["audit", "standby", "unless this is the first start"];
        let warnings = journal.lines().filter(|line| line.contains("WARN"));
        let warnings: Vec<_> = warnings.filter(|line| !expected.iter().any(|text| line.contains(text))).collect();
        assert!(warnings.is_empty(), "{name}: {warnings:#?}");
    }
}

/// CloudNativePG derives the names of its Secrets and of its Service from that of the Cluster.
#[test]
fn the_gateways_use_what_cloudnativepg_makes() {
    let cluster = resources(&manifest("cloudnativepg")).remove(0);
    let name = cluster["metadata"]["name"].as_str().expect("a name");
    let initial = &cluster["spec"]["bootstrap"]["initdb"];
    let url = format!(
        "postgres://{}@{name}-rw:5432/{}",
        initial["owner"].as_str().expect("a role"),
        initial["database"].as_str().expect("a database")
    );
    let made = resources(&example(PROGRAMS[0], "cloudnativepg"));
    let config = of_kind(&made, "ConfigMap")["data"]["gateway.toml"].as_str().expect("text").to_owned();
    assert!(config.contains(&format!("postgres = \"{url}\"\n")), "{config}");
    let volumes = of_kind(&made, "Deployment")["spec"]["template"]["spec"]["volumes"].clone();
    for (secret, keys) in [(format!("{name}-app"), ["password"]), (format!("{name}-ca"), ["ca.crt"])] {
        let volume = list(&volumes).iter().find(|volume| volume["secret"]["secretName"] == *secret);
        let items = list(&volume.unwrap_or_else(|| panic!("no {secret}"))["secret"]["items"]);
        assert_eq!(items.iter().map(|item| &item["key"]).collect::<Vec<_>>(), keys, "{secret}");
    }
    let policy = of_kind(&made, "NetworkPolicy")["spec"]["egress"].to_string();
    assert!(policy.contains(&format!("\"cnpg.io/cluster\":\"{name}\"")), "{policy}");
}

#[test]
fn the_ingress_leads_to_the_service() {
    let file = source::root().join(CHART).join("examples/ingress.yaml");
    for version in VERSIONS {
        assert_eq!(check_manifests(version, &[&file]), ("Ingress bearward\n".into(), true), "{version}");
    }
    let ingress = resources(&manifest("ingress")).remove(0);
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    let made = resources(&example(PROGRAMS[0], "ingress"));
    let service = of_kind(&made, "Service");
    assert_eq!(backend["name"], service["metadata"]["name"]);
    assert_eq!(backend["port"]["name"], service["spec"]["ports"][0]["name"]);
}

#[test]
fn the_route_with_external_auth_asks_the_service() {
    let text = manifest("gateway-api");
    assert_eq!(gateway_api::check(&text), ("HTTPRoute orders\n".into(), true));
    let route = resources(&text).remove(0);
    let tested = resources(&source::read("deploy/beside/gateway-api.yaml"));
    assert_eq!(&route, of_kind(&tested, "HTTPRoute"), "the tested route differs");
    let filters = list(&route["spec"]["rules"][1]["filters"]);
    let asked = &filters.iter().find(|filter| filter["type"] == "ExternalAuth").expect("a filter")["externalAuth"];
    let made = resources(&example(PROGRAMS[0], "gateway-api"));
    let service = of_kind(&made, "Service");
    assert_eq!(asked["backendRef"]["name"], service["metadata"]["name"]);
    assert_eq!(asked["backendRef"]["port"], service["spec"]["ports"][0]["port"]);
    assert_eq!(service["spec"]["ports"][0]["appProtocol"], "kubernetes.io/h2c");
}
