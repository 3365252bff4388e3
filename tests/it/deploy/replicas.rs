//! `compose.yaml` and the Kubernetes manifests: what can be tried of them without a container runtime or a cluster.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bearward::config::{self, Probe};
use serde_json::json;
use tempfile::TempDir;

use super::chart::pod::Pod;
use crate::support::certificates::Authority;
use crate::support::files::write_certificates;
use crate::support::haproxy::Haproxy;
use crate::support::ports::free_address;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::source;
use crate::support::wait::eventually_within;
use crate::support::{Client, TokenPair, Upstream};

/// `tests/run` installs them.
const SCHEMAS: &str = "target/kubernetes/kubernetes_validate/kubernetes-json-schema";
/// The oldest version with all fields of the manifests, and the newest of the package.
pub(super) const VERSIONS: [&str; 2] = ["v1.30.0-local-strict", "v1.37.0-local-strict"];
/// The gateway looks at its files every two seconds.
const RELOAD: Duration = Duration::from_secs(30);
const MANIFESTS: [&str; 2] = ["deploy/kubernetes/bearward.yaml", "deploy/kubernetes/secret.yaml"];

/// Runs the check on these files. Returns what it printed, and whether it found them valid.
pub(super) fn check_manifests(version: &str, files: &[&Path]) -> (String, bool) {
    let script = source::root().join("tests/it/deploy/kubernetes.py");
    let schemas = source::root().join(SCHEMAS).join(version);
    assert!(schemas.exists(), "the schemas of Kubernetes are missing: run tests/run");
    let output = Command::new("/usr/bin/python3").arg(script).arg(schemas).args(files).output().expect("python3");
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&printed).into_owned(), output.status.success())
}

#[test]
fn the_kubernetes_manifests_follow_their_schemas() {
    let files = MANIFESTS.map(|file| source::root().join(file));
    let expected = ["ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "Secret"];
    let expected = expected.map(|kind| format!("{kind} bearward\n")).concat();
    let beside = source::root().join("deploy/beside/gateway-api.yaml");
    for version in VERSIONS {
        assert_eq!(check_manifests(version, &[&files[0], &files[1]]), (expected.clone(), true), "{version}");
        assert_eq!(check_manifests(version, &[&beside]), ("Service bearward-auth\n".into(), true), "{version}");
    }
}

/// Otherwise the test above could not fail.
#[test]
fn the_schemas_reject_misspelled_fields() {
    let folder = TempDir::new().expect("a folder");
    let text = source::read(MANIFESTS[0]);
    for (right, wrong) in [("replicas: 3", "replica: 3"), ("readOnly: true", "readOnly: 1"), ("kind: Service\n", "")] {
        let file = folder.path().join("wrong.yaml");
        fs::write(&file, text.replacen(right, wrong, 1)).expect("written");
        assert!(!check_manifests(VERSIONS[1], &[&file]).1, "{wrong}");
    }
}

#[test]
fn the_configuration_of_the_pods_has_no_fault_or_warning() {
    let text = source::read(MANIFESTS[0]);
    let block = text.split_once("gateway.toml: |\n").expect("the ConfigMap has a configuration").1;
    let lines = block.split("\n---").next().expect("a document").lines();
    let configuration: String = lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    let folder = TempDir::new().expect("a folder");
    write_secrets(&folder.path().join("secrets"));
    write_certificates(&Authority::new(), &folder.path().join("tls"));
    let tls = folder.path().join("tls");
    for (from, to) in [("fullchain.pem", "tls.crt"), ("key.pem", "tls.key")] {
        fs::copy(tls.join(from), tls.join(to)).expect("copied");
    }
    let configuration = configuration.replace("/etc/bearward/", &format!("{}/", folder.path().display()));
    let configuration = configuration.replace("/run/bearward/", &format!("{}/", folder.path().display()));
    if let Err(faults) = config::parse(&configuration, folder.path(), Probe::None) {
        panic!("{}", faults.render(false));
    }
}

/// The kubelet and Docker keep a file that they mount alone as it was when the container started.
#[test]
fn no_configuration_is_mounted_as_a_single_file() {
    for file in [MANIFESTS[0], "deploy/chart/templates/deployment.yaml"] {
        let text = source::read(file);
        assert!(!text.contains("subPath:") && text.contains("mountPath: /etc/bearward/config,"), "{file}");
        assert!(text.contains("\"--config\", \"/etc/bearward/config/gateway.toml\"]"), "{file}");
    }
    let compose = source::read("deploy/compose.yaml");
    assert!(!compose.contains("gateway.toml:/") && compose.contains("- ./compose:/etc/bearward/config:ro\n"));
    assert!(compose.contains("command: [\"serve\", \"--config\", \"/etc/bearward/config/gateway.toml\"]\n"));
}

/// `kubectl apply` changes only the ConfigMap.
#[tokio::test]
async fn a_changed_config_map_reaches_a_running_gateway() {
    let upstream = Upstream::start();
    let mut pod = Pod::of_manifest(&source::read(MANIFESTS[0]), &upstream);
    let gateway = pod.start().await;
    let client = pod.client(&gateway);
    client.get("/").await.assert_rejected(401, "unauthorized");
    pod.change_config("\n[[route]]\npath = \"/\"\npublic = true\n");
    eventually_within(RELOAD, "the route is public", async || match client.get("/").await.status.as_u16() {
        200 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
}

/// The files that replicas.md tells the operator to make.
fn write_secrets(folder: &Path) {
    fs::create_dir_all(folder).expect("created");
    let authority = Authority::new();
    let root = format!("1 0{}\n", "r".repeat(42));
    let secrets = [("bearward.secret", root.as_str()), ("admin.token", ADMIN_TOKEN), ("postgres.password", "secret")];
    for (name, content) in secrets.into_iter().chain([("ca.pem", authority.pem().as_str())]) {
        let file = folder.join(name);
        fs::write(&file, content).expect("written");
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("its owner");
    }
}

pub(super) const ADMIN_TOKEN: &str = "the-admin-token-of-both-gateways-0123456789";

/// Two gateways with the configuration of Compose, and HAProxy with its own in front of them.
struct Composition {
    gateways: Vec<(GatewayProcess, TempDir)>,
    front: SocketAddr,
    certificate: std::path::PathBuf,
    _haproxy: Haproxy,
    _folder: TempDir,
}

impl Composition {
    fn start(server: &PostgresServer, upstream: &Upstream) -> Composition {
        let (authority, schema) = (Authority::new(), server.schema());
        let [front, one, two, admin_one, admin_two] = std::array::from_fn(|_| free_address());
        let start = |(listener, admin): (SocketAddr, SocketAddr)| {
            let folder = TempDir::new().expect("a folder");
            write_secrets(&folder.path().join("secrets"));
            authority.sign("localhost").write(&folder.path().join("secrets"), "own");
            for (made, named) in [("own.pem", "fullchain.pem"), ("own.key", "key.pem")] {
                fs::rename(folder.path().join("secrets").join(made), folder.path().join("secrets").join(named))
                    .expect("made");
            }
            let text = replaced(
                &source::read("deploy/compose/gateway.toml"),
                &[
                    ("0.0.0.0:8443", &listener.to_string()),
                    ("0.0.0.0:9443", &admin.to_string()),
                    ("172.30.0.2", "127.0.0.1"),
                    ("postgres://bearward@database:5432/bearward", &server.url()),
                    ("postgres_ca_file = \"/etc/bearward/secrets/ca.pem\"\n", &format!("schema = \"{schema}\"\n")),
                    ("/etc/bearward/", ""),
                    ("/var/lib/bearward/", ""),
                    ("http://backend:80", &format!("http://{}", upstream.address)),
                ],
            );
            fs::write(folder.path().join("gateway.toml"), text).expect("written");
            fs::copy(folder.path().join("secrets/admin.token"), folder.path().join("admin.token")).expect("copied");
            (GatewayProcess::start(folder.path()), folder)
        };
        let gateways: Vec<_> = [(one, admin_one), (two, admin_two)].into_iter().map(start).collect();
        // In the containers, every gateway has the same admin port, so HAProxy names it once.
        let configuration = replaced(
            &source::read("deploy/compose/haproxy.cfg"),
            &[
                (":8443\n    default_backend", &format!("{front}\n    default_backend")),
                ("check port 9443 ", ""),
                ("gateway-1:8443", &format!("{one} check port {}", admin_one.port())),
                ("gateway-2:8443", &format!("{two} check port {}", admin_two.port())),
            ],
        );
        let folder = TempDir::new().expect("a folder");
        let haproxy = Haproxy::start(folder.path(), &configuration, &[front]);
        let certificate = folder.path().join("ca.pem");
        fs::write(&certificate, authority.pem()).expect("written");
        Composition { gateways, front, certificate, _haproxy: haproxy, _folder: folder }
    }

    fn client(&self) -> Client {
        Client::http1(self.front).host("localhost").over_tls(&self.certificate)
    }
}

fn replaced(text: &str, parts: &[(&str, &str)]) -> String {
    parts.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old} is gone");
        text.replace(old, new)
    })
}

#[tokio::test]
async fn two_gateways_behind_haproxy_are_one() {
    let upstream = Upstream::start();
    let mut composition = std::thread::scope(|scope| {
        scope.spawn(|| Composition::start(PostgresServer::shared(), &upstream)).join().expect("no panic")
    });
    let admin = composition.gateways[0].0.admin_client();
    let issued = admin.post("/admin/v1/tokens", &json!({ "subject": "alice", "scope": "a" })).await;
    let mut pair = TokenPair::from_json(&issued.json());
    for _ in 0..6 {
        let body = json!({ "refreshToken": pair.refresh });
        let refreshed = composition.client().bearer(&pair.access).post("/user/refresh", &body).await;
        assert_eq!(refreshed.status, 200, "{refreshed:?}");
        pair = TokenPair::from_json(&refreshed.json());
        assert_eq!(composition.client().bearer(&pair.access).get("/").await.status, 200);
    }
    let served = |gateway: &(GatewayProcess, TempDir)| !gateway.0.program.wait_for_stdout("\"status\":200").is_empty();
    assert!(composition.gateways.iter().all(served), "HAProxy used only one gateway");
    // The address of the client, not that of HAProxy's connection.
    assert_eq!(upstream.seen().pop().expect("it arrived").header("x-forwarded-for"), Some("127.0.0.1"));

    composition.gateways.remove(0).0.program.kill();
    // Before HAProxy has noticed it by a check.
    for _ in 0..10 {
        assert_eq!(composition.client().bearer(&pair.access).get("/").await.status, 200);
    }
}
