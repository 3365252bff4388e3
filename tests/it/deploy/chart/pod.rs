//! The files of a pod as the kubelet mounts them, and a gateway on them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::deploy::gateway_api::resources;
use crate::deploy::replicas::ADMIN_TOKEN;
use crate::support::certificates::Authority;
use crate::support::postgres::PostgresServer;
use crate::support::program::{GatewayProcess, Program};
use crate::support::{Client, MountedVolume, Upstream};

/// The file with the CA of the certificate, in the folder that stands for `/`.
const AUTHORITY: &str = "authority.pem";

/// A pod of the Deployment in a manifest.
pub struct Pod {
    /// Stands for `/`.
    root: TempDir,
    /// The resources of the manifest.
    resources: Vec<Value>,
    /// The volume with gateway.toml, unless that is mounted as a single file.
    config: Option<MountedVolume>,
    text: String,
}

impl Pod {
    /// Mounts the volumes. gateway.toml has the database, the backend and free ports of this machine.
    pub fn of_manifest(manifest: &str, upstream: &Upstream) -> Pod {
        let root = TempDir::new().expect("a folder");
        let resources = resources(manifest);
        let text = of_kind(&resources, "ConfigMap")["data"]["gateway.toml"].as_str().expect("text").to_owned();
        let text = std::thread::scope(|scope| {
            scope.spawn(|| on_this_machine(&text, root.path(), upstream)).join().expect("no panic")
        });
        let mut pod = Pod { root, resources, config: None, text };
        pod.mount_all();
        pod
    }

    fn container(&self) -> &Value {
        &of_kind(&self.resources, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    }

    fn mount_all(&mut self) {
        let spec = of_kind(&self.resources, "Deployment")["spec"]["template"]["spec"].clone();
        let authority = Authority::new();
        fs::write(self.root.path().join(AUTHORITY), authority.pem()).expect("written");
        let secrets = secrets(&authority);
        for mount in list(&spec["containers"][0]["volumeMounts"]) {
            let volume = list(&spec["volumes"]).iter().find(|volume| volume["name"] == mount["name"]);
            self.mount(mount, volume.expect("each mount has its volume"), &secrets);
        }
    }

    fn mount(&mut self, mount: &Value, volume: &Value, secrets: &BTreeMap<&str, Files>) {
        let path = self.root.path().join(mount["mountPath"].as_str().expect("a path").trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        if volume["emptyDir"].is_object() {
            assert_eq!(volume["emptyDir"]["medium"], "Memory", "another one is open to every user");
            fs::create_dir(&path).expect("created");
            fs::set_permissions(&path, Permissions::from_mode(0o1777)).expect("as a tmpfs");
            return;
        }
        if volume["configMap"].is_object() && mount["subPath"].is_string() {
            fs::write(&path, &self.text).expect("written");
            return;
        }
        if volume["configMap"].is_object() {
            self.config = Some(MountedVolume::new(&path, &[("gateway.toml", &self.text)]));
            return;
        }
        assert_eq!(volume["secret"]["defaultMode"], 0o440);
        let name = volume["secret"]["secretName"].as_str().expect("the name of a Secret");
        let all = secrets.get(name).unwrap_or_else(|| panic!("no page makes the Secret {name}"));
        let items = volume["secret"]["items"].as_array();
        let is_mounted =
            |key: &str| items.is_none_or(|items| items.iter().any(|item| item["key"] == key && item["path"] == key));
        let files: Vec<_> = all.iter().filter(|file| is_mounted(file.0)).collect();
        assert!(items.is_none_or(|items| items.len() == files.len()), "{name} lacks a key of {items:?}");
        let files: Vec<_> = files.into_iter().map(|(name, content)| (*name, content.as_str())).collect();
        MountedVolume::new(&path, &files);
    }

    /// Appends to gateway.toml in the ConfigMap. The kubelet does not change a file that is mounted alone.
    pub fn change_config(&mut self, appended: &str) {
        self.text.push_str(appended);
        if let Some(config) = &mut self.config {
            config.swap(&[("gateway.toml", &self.text)]);
        }
    }

    /// Starts the program with the arguments of the container.
    pub async fn start(&self) -> GatewayProcess {
        let root = self.root.path().to_owned();
        let path = root.join("etc/bearward").display().to_string();
        let arguments = list(&self.container()["args"]).iter();
        let arguments: Vec<_> =
            arguments.map(|argument| argument.as_str().expect("text").replace("/etc/bearward", &path)).collect();
        let starting = tokio::task::spawn_blocking(move || {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            GatewayProcess::wait_for(Program::start(&root, &arguments), &root.join("etc/bearward/secrets"))
        });
        starting.await.expect("it starts")
    }

    /// A client of the listener, over TLS if the pod has a certificate.
    pub fn client(&self, gateway: &GatewayProcess) -> Client {
        let client = gateway.client().host("api.example");
        let has_certificate = self.root.path().join("etc/bearward/tls").exists();
        if has_certificate { client.over_tls(&self.root.path().join(AUTHORITY)) } else { client }
    }

    /// The path of each probe, all of which are at the admin port.
    pub fn probes(&self) -> Vec<String> {
        let container = self.container();
        let admin = list(&container["ports"]).iter().find(|port| port["name"] == "admin").expect("the admin port");
        assert_eq!(admin["containerPort"], 9443);
        let probes = ["startupProbe", "readinessProbe", "livenessProbe"].map(|probe| &container[probe]["httpGet"]);
        assert!(probes.iter().all(|probe| probe["port"] == "admin"), "{probes:?}");
        probes.iter().map(|probe| probe["path"].as_str().expect("a path").to_owned()).collect()
    }
}

type Files = Vec<(&'static str, String)>;

/// The Secrets that kubernetes.md and CloudNativePG make.
fn secrets(authority: &Authority) -> BTreeMap<&'static str, Files> {
    let folder = TempDir::new().expect("a folder");
    authority.sign("localhost").write(folder.path(), "own");
    let [certificate, key] =
        ["own.pem", "own.key"].map(|name| fs::read_to_string(folder.path().join(name)).expect("made"));
    let own = vec![
        ("bearward.secret", format!("1 0{}\n", "r".repeat(42))),
        ("admin.token", ADMIN_TOKEN.to_owned()),
        ("postgres.password", "secret".to_owned()),
        ("ca.pem", authority.pem()),
    ];
    let database = [
        ("username", "bearward"),
        ("password", "secret"),
        ("dbname", "bearward"),
        ("host", "bearward-db-rw"),
        ("port", "5432"),
        ("uri", "postgresql://bearward:secret@bearward-db-rw.gateway:5432/bearward"),
    ];
    BTreeMap::from([
        ("bearward", own),
        ("bearward-tls", vec![("tls.crt", certificate), ("tls.key", key)]),
        ("bearward-db-app", database.map(|(name, content)| (name, content.to_owned())).to_vec()),
        ("bearward-db-ca", vec![("ca.crt", authority.pem()), ("ca.key", "the key of the CA".to_owned())]),
    ])
}

/// The text of gateway.toml with the folders, the database, the backend and free ports of this machine.
fn on_this_machine(text: &str, root: &Path, upstream: &Upstream) -> String {
    let server = PostgresServer::shared();
    let lines = text.lines().filter_map(|line| match line.split_once(" = ") {
        Some(("postgres", _)) => Some(server.store_keys()),
        // The server of the tests has no certificate.
        Some(("postgres_ca_file", file)) => {
            assert!(file.starts_with("\"/etc/bearward/"), "{file}");
            None
        }
        _ => Some(format!("{line}\n")),
    });
    let text = lines.collect::<String>();
    let root = root.display().to_string();
    let replaced = [
        ("0.0.0.0:8443", "127.0.0.1:0"),
        ("0.0.0.0:9443", "127.0.0.1:0"),
        ("10.244.0.0/16", "127.0.0.0/8"),
        ("http://orders.shop.svc:80", &format!("http://{}", upstream.address)),
        ("\"/etc/bearward/", &format!("\"{root}/etc/bearward/")),
        ("\"/run/bearward/", &format!("\"{root}/run/bearward/")),
    ];
    replaced.iter().fold(text, |text, part| text.replace(part.0, part.1))
}

/// The only resource of this kind.
pub fn of_kind<'a>(resources: &'a [Value], kind: &str) -> &'a Value {
    let mut found = resources.iter().filter(|resource| resource["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "two of {kind}");
    first
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
