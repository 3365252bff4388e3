//! The image, as it comes from the archive: its files, its user, and a request to a gateway that runs in it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Package, on_this_machine, run};
use crate::support::program::Program;
use crate::support::source;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Upstream};

/// The packed image, with all that a gateway needs.
const MAX_BYTES: u64 = 10_000_000;

/// An image that is unpacked into a folder.
struct Image {
    package: Arc<Package>,
    /// The configuration of the image: user, entry point, labels.
    config: Value,
    root: TempDir,
}

impl Image {
    fn unpack() -> Image {
        let package = Package::shared("image");
        let [archive, root] = [(); 2].map(|()| TempDir::new().expect("a folder"));
        // A folder for temporary files is closed to the user of the image.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("opened");
        run(Command::new("tar").args(["--extract", "--file", package.path(), "--directory"]).arg(archive.path()));
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().expect("a digest");
            archive.path().join("blobs").join(digest.replace(':', "/"))
        };
        let index = read_json(&archive.path().join("index.json"));
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1), "one image: {index}");
        let manifest = read_json(&blob(&index["manifests"][0]));
        for layer in manifest["layers"].as_array().expect("layers") {
            let mut tar = Command::new("tar");
            tar.args(["--extract", "--gzip", "--same-owner", "--numeric-owner", "--file"]).arg(blob(layer));
            run(tar.arg("--directory").arg(root.path()));
        }
        let config = read_json(&blob(&manifest["config"]));
        Image { package, config, root }
    }

    /// The paths of all files and folders, sorted.
    fn paths(&self) -> Vec<String> {
        let find = run(Command::new("find").arg(self.root.path()).args(["-mindepth", "1", "-printf", "%P\\n"]));
        let mut paths: Vec<_> = find.lines().map(str::to_owned).collect();
        paths.sort();
        paths
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

#[test]
fn the_image_has_the_program_and_no_shell() {
    let image = Image::unpack();
    let is_library = |path: &&String| path.starts_with("lib");
    let (libraries, others): (Vec<_>, Vec<_>) = image.paths().into_iter().partition(|path| is_library(&path));
    assert_eq!(
        others,
        [
            "etc",
            "etc/bearward",
            "etc/group",
            "etc/nsswitch.conf",
            "etc/passwd",
            "etc/ssl",
            "etc/ssl/certs",
            "etc/ssl/certs/ca-certificates.crt",
            "usr",
            "usr/local",
            "usr/local/bin",
            "usr/local/bin/bearward",
            "var",
            "var/lib",
            "var/lib/bearward",
        ]
    );
    let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    let files = libraries.iter().filter(|path| image.root.path().join(path).is_file()).map(name);
    let known = |name: &String| name.starts_with("ld-linux") || ["libc.so.6", "libgcc_s.so.1"].contains(&name.as_str());
    assert!(files.clone().all(|name| known(&name)) && files.count() >= 3, "{libraries:?}");

    let state = fs::metadata(image.root.path().join("var/lib/bearward")).expect("a folder");
    assert_eq!((state.uid(), state.gid()), (65532, 65532), "the gateway cannot write its state");
}

#[test]
fn the_image_runs_as_a_user_that_is_not_root() {
    let image = Image::unpack();
    let config = &image.config["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/usr/local/bin/bearward"]));
    assert_eq!(config["Volumes"], json!({ "/var/lib/bearward": {} }));
    assert_eq!(config["Labels"]["org.opencontainers.image.title"], "bearward");
    assert_eq!(config["Labels"]["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(config["Labels"]["org.opencontainers.image.licenses"], "Apache-2.0");
}

#[tokio::test]
async fn a_gateway_in_the_image_answers() {
    let image = Image::unpack();
    let backend = Upstream::start();
    let (text, address) = on_this_machine(&source::read("deploy/package/gateway.toml"), &backend);
    fs::write(image.root.path().join("etc/bearward/gateway.toml"), text).expect("written");

    let strings = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).expect("a list of strings") };
    let config = &image.config["config"];
    let command = [strings(&config["Entrypoint"]), strings(&config["Cmd"])].concat().join(" ");
    let user = config["User"].as_str().expect("a user");
    let root = image.root.path();
    let in_image = format!("exec chroot --userspec={user} --groups= {}", root.display());
    let gateway = Program::start_with_shell(&root.join("var/lib/bearward"), &format!("{in_image} {command}"));
    gateway.wait_for_stderr("admin listening");

    let issue = "/usr/local/bin/bearward token issue --config /etc/bearward/gateway.toml --subject alice --json";
    let pair: Value = serde_json::from_str(&run(Command::new("bash").args(["-c", &format!("{in_image} {issue}")])))
        .expect("a token pair as JSON");
    let token = pair["accessToken"].as_str().expect("an access token");
    let response = eventually_ok("a response", async || Ok(Client::http1(address).bearer(token).get("/").await)).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(Client::http1(address).get("/").await.status, 401);
    assert_eq!(backend.only_request().header("x-auth-subject"), Some("alice"));
    gateway.signal("TERM");
    assert!(gateway.wait().0.success());
}

#[test]
#[ignore = "needs the program of a release build: .ci/run names it in BEARWARD_PROGRAM"]
fn the_packed_image_is_smaller_than_10_mb() {
    assert!(std::env::var_os("BEARWARD_PROGRAM").is_some(), "BEARWARD_PROGRAM names no release build");
    let image = Image::unpack();
    let bytes = fs::metadata(&image.package.file).expect("a file").len();
    eprintln!("the packed image has {bytes} bytes");
    assert!(bytes < MAX_BYTES, "{bytes} bytes, more than {MAX_BYTES}");
}

/// `docker build` gets these files and no others: what the program is made of must be among them.
#[test]
fn the_recipe_of_the_image_gets_all_sources() {
    let ignore = source::read(".dockerignore");
    let gets = |path: &str| ignore.lines().filter_map(|line| line.strip_prefix('!')).any(|kept| path.starts_with(kept));
    for needed in [
        ".cargo/config.toml",
        "Cargo.toml",
        "Cargo.lock",
        "src/main.rs",
        "benches/README.md",
        "deploy/package/image-root",
    ] {
        assert!(gets(needed) && source::root().join(needed).exists(), "{needed} does not get to `docker build`");
    }
    let recipe = source::read("deploy/Dockerfile");
    assert!(
        recipe.contains("RUN deploy/package/image-root /bearward /image\n"),
        "other files than the image of the release"
    );
    let included = run(Command::new("grep").current_dir(source::root()).args([
        "--recursive",
        "--only-matching",
        "--extended-regexp",
        "include_(str|bytes)!\\(\"[^\"]*\"",
        "src",
    ]));
    for line in included.lines() {
        let (file, path) = line.split_once(':').expect("grep names the file");
        let path = path.split('"').nth(1).expect("a path in quotes");
        let folder = PathBuf::from(file).parent().expect("a folder").join(path);
        let folder = source::root().join(folder).canonicalize().expect("a file");
        let relative = folder.strip_prefix(source::root()).expect("a file of the sources").to_str().expect("UTF-8");
        assert!(gets(relative), "{file} includes {relative}, which does not get to `docker build`");
    }
}
