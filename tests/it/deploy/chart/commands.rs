//! The commands of kubernetes.md. There is no cluster: Helm renders in place of an installation, and a replacement of
//! kubectl looks for the files.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// Options of `helm upgrade` are those of `helm template`, except --install. With --help last, Helm rejects unknown
/// options of the other commands and calls no cluster.
const HELM: &str = r#"#!/usr/bin/env bash
set -euo pipefail
echo "$1" >>"$CALLED"
case $1 in
    upgrade)
        shift
        for argument in "$@"; do [[ $argument == --install ]] || kept+=("$argument"); done
        exec "$HELM" template "${kept[@]}" ;;
    template) exec "$HELM" "$@" ;;
    history | rollback | uninstall) exec "$HELM" "$@" --help ;;
    *) exit 1 ;;
esac
"#;

/// Each file that an argument names must exist.
const KUBECTL: &str = r#"#!/usr/bin/env bash
set -euo pipefail
echo kubectl >>"$CALLED"
while (($#)); do
    case $1 in
        --from-file=* | --cert=* | --key=*) [[ -e ${1#*=} ]] ;;
        --filename) [[ -e $2 ]]; shift ;;
    esac
    shift
done
"#;

#[test]
fn the_commands_of_the_page_work() {
    let scripts = blocks(&source::read(PAGE), "sh");
    for name in PROGRAMS {
        let operator = Operator::new();
        let folder = operator.folder.path();
        for file in
            ["bearward.secret", "admin.token", "postgres.password", "ca.pem", "fullchain.pem", "key.pem", "called"]
        {
            fs::write(folder.join(file), "").expect("written");
        }
        symlink(source::root().join("deploy"), folder.join("deploy")).expect("linked");
        fs::create_dir(folder.join("bin")).expect("created");
        for (program, script) in [("helm", HELM), ("kubectl", KUBECTL)] {
            fs::write(folder.join("bin").join(program), script).expect("written");
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder.join("bin").join(program), executable).expect("set");
        }
        let path = format!("{}:{}", operator.path("bin"), std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("set -euxo pipefail\n{}", scripts.join("\n"))]).current_dir(folder);
        bash.env("PATH", path).env("HELM", super::program(name)).env("CALLED", folder.join("called"));
        let output = bash.output().expect("bash is there");
        assert!(output.status.success(), "{name}: {}", output_text(&output));
        let called = fs::read_to_string(folder.join("called")).expect("a file");
        for (verb, times) in [("upgrade", 6), ("template", 1), ("history", 1), ("rollback", 1), ("kubectl", 10)] {
            assert_eq!(called.lines().filter(|line| *line == verb).count(), times, "{verb}:\n{called}");
        }
    }
}
