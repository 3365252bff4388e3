//! The values of the chart: few, checked, and none of them a secret.

use std::collections::BTreeSet;
use std::fs;

use super::*;

#[test]
fn values_that_the_chart_does_not_know_are_rejected() {
    let operator = Operator::new();
    for wrong in [
        "adminToken=x",
        "postgres.password=x",
        "secrets.tls.value=x",
        "secrets.tls.stringData.key=x",
        "secrets.login.keys[0]=client.secret",
        "secrets.config.name=x",
        "secrets.run.name=x",
        "secrets.A.name=x",
        "secrets.login.name=Not A Name",
        "secrets.login.name=../x",
        "replicas=0",
        "replicas=many",
        "image.tag=latest\\,x",
        "image.repository=",
        "imagePullSecrets[0].name=x",
        "service.type=ExternalName",
        "service.port=0",
        "service.protocol=tcp",
        "networkPolicy.egress[2].ports[0].port=443",
        "networkPolicy.egress[0].to[0].cidr=192.0.2.0/24",
        "networkPolicy.clients[0]=ingress",
        "resources.limit.memory=1Gi",
        "terminationGracePeriodSeconds=5",
    ] {
        for name in PROGRAMS {
            let error = operator.render(name, &["--set", wrong]).expect_err(wrong);
            assert!(error.contains("values don't meet the specifications of the schema"), "{name}, {wrong}: {error}");
        }
    }
    let digest = format!("image.tag=1.2.3@sha256:{}", "0".repeat(64));
    for right in [
        "secrets.login.name=login.v2",
        "secrets.tls=null",
        "replicas=1",
        "image.repository=registry.example:5000/team/bearward",
        &digest,
        "networkPolicy.egress[0].to[0].ipBlock.cidr=192.0.2.0/24",
        "global.anything=x",
        "terminationGracePeriodSeconds=600",
    ] {
        for name in PROGRAMS {
            operator.render(name, &["--set", right]).unwrap_or_else(|error| panic!("{name}, {right}: {error}"));
        }
    }
}

/// The probes would fail without a message.
#[test]
fn a_configuration_without_the_ports_of_the_pod_is_rejected() {
    let operator = Operator::new();
    let text = fs::read_to_string(operator.path("gateway.toml")).expect("a file");
    let rejected = [
        (String::new(), "config is empty"),
        (text.replace("0.0.0.0:9443", "127.0.0.1:9443"), "no address \"0.0.0.0:9443\""),
        (text.replace("address = \"0.0.0.0:9443\"", "# address = \"0.0.0.0:9443\""), "no address \"0.0.0.0:9443\""),
        (text.replace("0.0.0.0:8443", "0.0.0.0:443"), "no address \"0.0.0.0:8443\""),
    ];
    for name in PROGRAMS {
        for (text, expected) in &rejected {
            fs::write(operator.path("gateway.toml"), text).expect("written");
            let error = operator.render(name, &[]).expect_err(expected);
            assert!(error.contains(expected), "{name}: {error}");
        }
        let on_ipv6 = text.replace("\"0.0.0.0:", "'[::]:").replace("43\"", "43'");
        fs::write(operator.path("gateway.toml"), on_ipv6).expect("written");
        operator.render(name, &[]).expect("an address of IPv6");
    }
}

#[test]
fn no_secret_is_made() {
    for name in PROGRAMS {
        let made = resources(&Operator::new().render(name, &[]).expect("it renders"));
        assert!(made.iter().all(|resource| resource["kind"] != "Secret"), "{made:?}");
    }
}

/// The page has a row for each value, with its default.
#[test]
fn the_page_describes_every_value() {
    let page = source::read(PAGE);
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let values = resources(&source::read(format!("{CHART}/values.yaml"))).remove(0);
    let mut expected = BTreeSet::new();
    for (name, value) in values.as_object().expect("values") {
        match value.as_object().filter(|_| ["image", "service", "networkPolicy"].contains(&name.as_str())) {
            Some(members) => expected.extend(members.keys().map(|member| format!("{name}.{member}"))),
            None => drop(expected.insert(name.clone())),
        }
    }
    assert_eq!(rows.len(), expected.len());
    assert_eq!(rows.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}
