//! Volumes of Kubernetes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A ConfigMap or a Secret, as the kubelet mounts it as a folder: each file is a link to `..data`, which is a link that
/// a rename replaces with the next one. The group of the gateway reads the files (`fsGroup`, `defaultMode: 0440`).
pub struct MountedVolume {
    folder: PathBuf,
    version: u32,
}

impl MountedVolume {
    pub fn new(folder: &Path, files: &[(&str, &str)]) -> MountedVolume {
        fs::create_dir(folder).expect("created");
        let mut mounted = MountedVolume { folder: folder.to_owned(), version: 0 };
        mounted.swap(files);
        for (name, _) in files {
            symlink(format!("..data/{name}"), folder.join(name)).expect("linked");
        }
        mounted
    }

    /// Replaces the files, as after a change of the ConfigMap or the Secret.
    pub fn swap(&mut self, files: &[(&str, &str)]) {
        let old = self.folder.join(format!("..version_{}", self.version));
        self.version += 1;
        let name = format!("..version_{}", self.version);
        fs::create_dir(self.folder.join(&name)).expect("created");
        for (file, content) in files {
            let file = self.folder.join(&name).join(file);
            fs::write(&file, content).expect("written");
            fs::set_permissions(&file, Permissions::from_mode(0o440)).expect("set");
        }
        symlink(&name, self.folder.join("..data_tmp")).expect("linked");
        fs::rename(self.folder.join("..data_tmp"), self.folder.join("..data")).expect("replaced");
        if old.exists() {
            fs::remove_dir_all(old).expect("removed");
        }
    }
}
