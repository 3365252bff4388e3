//! The output of the chart: the resources of the manifests, which the other tests try.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value};

use super::*;
use crate::deploy::replicas::{VERSIONS, check_manifests};

const MANIFEST: &str = "deploy/kubernetes/bearward.yaml";

/// What only Helm adds.
const OF_HELM: [&str; 5] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "checksum/config",
];

fn without_helm(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|member| !OF_HELM.contains(&member.0.as_str()));
            let mut kept: Map<_, _> = kept.map(|(name, value)| (name, without_helm(value))).collect();
            kept.retain(|name, value| name != "annotations" || value != &Value::Object(Map::new()));
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_helm).collect()),
        other => other,
    }
}

fn by_kind(resources: Vec<Value>) -> BTreeMap<String, Value> {
    resources.into_iter().map(|resource| (resource["kind"].to_string(), resource)).collect()
}

/// An operator with Helm and one with kubectl get the same gateways.
#[test]
fn the_chart_makes_the_resources_of_the_manifests() {
    let expected = resources(&source::read(MANIFEST));
    let operator = Operator::new();
    let config = of_kind(&expected, "ConfigMap")["data"]["gateway.toml"].as_str().expect("text");
    fs::write(operator.path("gateway.toml"), config).expect("written");
    let expected = by_kind(expected);
    for name in PROGRAMS {
        let made = resources(&operator.render(name, &[]).expect("it renders"));
        let made = by_kind(made.into_iter().map(without_helm).collect());
        assert_eq!(made.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (kind, resource) in &expected {
            assert_eq!(&made[kind], resource, "{name}: {kind}");
        }
    }
}

/// Otherwise the pods would not be replaced, or be replaced for nothing.
#[test]
fn the_checksum_follows_the_configuration() {
    let operator = Operator::new();
    let checksum = |name: &str, more: &[&str]| {
        let rendered = operator.render(name, more).expect("it renders");
        pods(&rendered)["metadata"]["annotations"]["checksum/config"].as_str().expect("a checksum").to_owned()
    };
    let before = PROGRAMS.map(|name| checksum(name, &[]));
    assert_eq!(before[0], before[1]);
    assert_eq!(checksum(PROGRAMS[0], &["--set", "replicas=5"]), before[0]);
    let text = fs::read_to_string(operator.path("gateway.toml")).expect("a file");
    fs::write(operator.path("gateway.toml"), format!("{text}# changed\n")).expect("written");
    assert_ne!(checksum(PROGRAMS[0], &[]), before[0]);
}

#[test]
fn the_configuration_reaches_the_config_map_as_it_is() {
    let operator = Operator::new();
    let text = fs::read_to_string(operator.path("gateway.toml")).expect("a file");
    let odd = format!("  # {{{{ .Values.config }}}} \"'\\ é: - |\t\n{text}\n\n# no line end");
    for text in [text, odd] {
        fs::write(operator.path("gateway.toml"), &text).expect("written");
        for name in PROGRAMS {
            let made = resources(&operator.render(name, &[]).expect("it renders"));
            assert_eq!(of_kind(&made, "ConfigMap")["data"]["gateway.toml"], *text, "{name}");
        }
    }
}

#[test]
fn everything_that_is_rendered_follows_the_schemas_of_kubernetes() {
    let operator = Operator::new();
    let more = [
        "--set=imagePullSecrets[0]=registry",
        "--set=service.type=NodePort",
        "--set=service.annotations.a=b",
        "--set=networkPolicy.clients[0].ipBlock.cidr=192.0.2.0/24",
        "--set=networkPolicy.monitoring=null",
        "--set-string=secrets.on.name=123",
        "--set-string=secrets.on.keys[0]=1",
    ];
    let without_policy = ["--set=networkPolicy.enabled=false", "--set=service.type=ClusterIP"];
    let kinds = ["NetworkPolicy", "PodDisruptionBudget", "ConfigMap", "Service", "Deployment"];
    for name in PROGRAMS {
        let rendered = [
            (&kinds[..], operator.render(name, &[]).expect("it renders")),
            (&kinds[..], operator.render(name, &more).expect("it renders")),
            (&kinds[1..], operator.render(name, &without_policy).expect("it renders")),
            (&kinds[..], example(name, "cloudnativepg")),
            (&kinds[..], example(name, "ingress")),
            (&kinds[..], example(name, "gateway-api")),
        ];
        for (kinds, text) in rendered {
            let file = operator.folder.path().join("rendered.yaml");
            fs::write(&file, &text).expect("written");
            for version in VERSIONS {
                let checked = check_manifests(version, &[&file]);
                assert!(checked.1, "{name}, {version}: {}\n{text}", checked.0);
                let found: Vec<_> = checked.0.lines().filter_map(|line| line.split(' ').next()).collect();
                assert_eq!(found, kinds, "{name}, {version}");
            }
        }
    }
}

/// With `timeouts.drain` at its default.
#[test]
fn a_pod_has_time_to_drain() {
    let pods = pods(&Operator::new().render(PROGRAMS[0], &[]).expect("it renders"));
    let sleep = &pods["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"];
    let grace = pods["spec"]["terminationGracePeriodSeconds"].as_u64().expect("a number");
    assert!(grace > sleep.as_u64().expect("a number") + 30, "{pods}");
}

#[test]
fn the_chart_has_the_version_of_the_program_and_no_fault_of_form() {
    let chart = source::read(format!("{CHART}/Chart.yaml"));
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\nappVersion: \"{version}\"\n")), "{chart}");
    let image = format!(" image: registry.example/bearward:{version}\n");
    assert!(source::read(MANIFEST).contains(&image), "the manifest has another version");
    let operator = Operator::new();
    let config = format!("--set-file=config={}", operator.path("gateway.toml"));
    for name in PROGRAMS {
        run(name, &["lint", "--strict", CHART, &config]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
