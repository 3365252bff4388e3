//! A real PostgreSQL server. The unit tests of `store/postgres` include this file too, so it uses only `ports.rs`.
//!
//! All tests of a process share one server; each has a schema of its own. A test that stops or breaks its server starts
//! one for itself. A server ends with the process of the tests, also after `kill -9`: it reads a pipe from it.

#[path = "ports.rs"]
pub mod ports;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// PostgreSQL does not run as root.
const UNPRIVILEGED: u32 = 65_534;
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Without flushes: a test that needs them starts a server of its own.
const FAST: &[&str] = &["fsync=off", "full_page_writes=off", "max_connections=400"];

/// Keeps the server until standard input ends, then removes its files. `$0`: the folder; the arguments: the server. A
/// test that failed may have stopped it.
const KEEPER: &str = r#"
"$@" >>"$0/log" 2>&1 &
server=$!
cat >/dev/null
kill -QUIT "$server"
kill -CONT "$server"
wait "$server"
umount "$0/data" 2>/dev/null
rm -rf "$0"
"#;

/// Settings of a server that has a standby.
pub const REPLICATED: &[&str] = &["wal_level=replica", "max_wal_senders=4", "hot_standby=on"];

/// The user, who is no superuser, and the database.
pub const USER: &str = "bearward";

pub struct PostgresServer {
    keeper: Child,
    pub folder: PathBuf,
    pub port: u16,
    /// By how many seconds its clock is ahead, if its folder has `clock.so`.
    ahead: i32,
}

impl PostgresServer {
    /// The server that all tests share.
    pub fn shared() -> &'static PostgresServer {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| PostgresServer::start_with(FAST, "trust"))
    }

    /// A server of the test's own, that flushes at each commit.
    pub fn start() -> PostgresServer {
        Self::start_with(&[], "trust")
    }

    /// With these settings in `postgresql.conf`, and this method of authentication.
    pub fn start_with(settings: &[&str], authentication: &str) -> PostgresServer {
        Self::start_in(new_folder(), settings, authentication)
    }

    /// On a disk of this size, such as `100m`. Only root may mount it.
    pub fn start_on_disk(size: &str) -> PostgresServer {
        let folder = new_folder();
        let data = folder.join("data");
        fs::create_dir(&data).expect("created");
        let options = format!("size={size},uid={UNPRIVILEGED},gid={UNPRIVILEGED},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&data).status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount a disk: tests/chaos must run as root");
        Self::start_in(folder, &[], "trust")
    }

    /// With a clock that [`PostgresServer::set_clock`] sets. `library`: `clock.so`.
    pub fn start_with_clock(library: &Path) -> PostgresServer {
        let folder = new_folder();
        fs::copy(library, folder.join("clock.so")).expect("copied");
        fs::write(folder.join("clock.millis"), 0_i64.to_ne_bytes()).expect("written");
        Self::start_in(folder, &[], "trust")
    }

    /// Sets the clock by this number of milliseconds ahead of the right time.
    pub fn set_clock(&self, millis: i64) {
        set_clock(&self.folder, millis);
    }

    fn start_in(folder: PathBuf, settings: &[&str], authentication: &str) -> PostgresServer {
        let data = folder.join("data");
        let mut password = tempfile_in(&folder, "password");
        password.write_all(b"secret of the superuser\n").expect("written");
        let path = data.display().to_string();
        let file = folder.join("password").display().to_string();
        let initdb = ["-D", &path, "-U", "postgres", "-A", authentication, "--pwfile", &file];
        let output = command("initdb").args(initdb).args(["-E", "UTF8", "--no-locale", "-N"]).output().expect("initdb");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let mut text = format!("unix_socket_directories = '{}'\nshared_buffers = 16MB\n", folder.display());
        text.extend(settings.iter().map(|setting| format!("{}\n", setting.replacen('=', " = ", 1))));
        let mut conf = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).expect("it is there");
        conf.write_all(text.as_bytes()).expect("written");

        let port = ports::free_port();
        let server = PostgresServer { keeper: keep(&folder, port, 0), folder, port, ahead: 0 };
        server.wait_until_ready();
        server.sql("postgres", &format!("create role {USER} login password 'secret'"));
        server.sql("postgres", &format!("create database {USER} owner {USER} encoding 'UTF8' template template0"));
        server
    }

    /// A server that replicates this one through the port `via`. Needs [`REPLICATED`].
    pub fn standby(&self, via: u16) -> PostgresServer {
        self.standby_in(new_folder(), via, 0)
    }

    /// As [`PostgresServer::standby`], with a clock that is `ahead` seconds ahead. `library`: `clock.so`.
    pub fn standby_with_clock(&self, via: u16, library: &Path, ahead: i32) -> PostgresServer {
        let folder = new_folder();
        fs::copy(library, folder.join("clock.so")).expect("copied");
        self.standby_in(folder, via, ahead)
    }

    fn standby_in(&self, folder: PathBuf, via: u16, ahead: i32) -> PostgresServer {
        let source = format!("host=127.0.0.1 port={via} user=postgres password='secret of the superuser'");
        let data = folder.join("data").display().to_string();
        let copied = command("pg_basebackup").args(["-R", "-c", "fast", "-D", &data, "-d", &source]).output();
        let copied = copied.expect("pg_basebackup is there: tests/run installs postgresql");
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        // The configuration of the primary names the folder of the primary.
        let text = format!("unix_socket_directories = '{}'\n", folder.display());
        let mut conf = fs::OpenOptions::new().append(true).open(folder.join("data/postgresql.conf")).expect("copied");
        conf.write_all(text.as_bytes()).expect("written");
        let port = ports::free_port();
        let standby = PostgresServer { keeper: keep(&folder, port, ahead), folder, port, ahead };
        standby.wait_until_ready();
        standby
    }

    /// Commits wait for the standby, which must be connected.
    pub fn wait_for_standby_at_commits(&self) {
        self.sql("postgres", "alter system set synchronous_standby_names = '*'");
        self.sql("postgres", "select pg_reload_conf()");
        let state = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        let deadline = Instant::now() + START_TIMEOUT;
        while self.sql("postgres", state) != "1" {
            assert!(Instant::now() < deadline, "the standby is not synchronous");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes the standby the primary.
    pub fn promote(&self) {
        self.sql("postgres", "select pg_promote(true, 30)");
        // It would wait for a standby of its own.
        self.sql("postgres", "alter system reset synchronous_standby_names");
        self.sql("postgres", "select pg_reload_conf()");
    }

    /// A name for the schema of one test.
    pub fn schema(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        format!("t_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// For `store.postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{USER}?sslmode=disable", self.port)
    }

    /// The keys of `[store]` for one test, with a schema of its own.
    pub fn store_keys(&self) -> String {
        format!("postgres = \"{}\"\nschema = \"{}\"\n", self.url(), self.schema())
    }

    /// Runs SQL as the superuser, in a session of its own. Returns the rows: columns separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
    }

    /// A session that leaves a transaction open until it is killed.
    pub fn open_transaction(&self, database: &str, sql: &str) -> Child {
        let mut psql = command("psql");
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", "-d", database, "-qX"]);
        psql.env("PGPASSWORD", "secret of the superuser").args(["-c", "begin", "-c", sql]);
        psql.args(["-c", "select pg_sleep(3600)"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql is there")
    }

    /// As [`PostgresServer::sql`], also while the server does not work.
    pub fn psql(&self, database: &str, sql: &str) -> std::process::Output {
        let mut psql = command("psql");
        psql.args(["-h", &self.folder.display().to_string(), "-p", &self.port.to_string(), "-U", "postgres"]);
        psql.env("PGPASSWORD", "secret of the superuser").args(["-d", database, "-qAtX", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-c", sql]).output().expect("psql is there: tests/run installs postgresql")
    }

    /// Process id of the server.
    pub fn pid(&self) -> String {
        let text = fs::read_to_string(self.folder.join("data/postmaster.pid")).expect("the server runs");
        text.lines().next().expect("a line").to_owned()
    }

    /// Ends all connections of the gateway, as an administrator does. Returns how many there were.
    pub fn terminate_connections(&self, application: &str) -> usize {
        let sql = format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like '{application}%'"
        );
        self.sql("postgres", &sql).lines().count()
    }

    /// Sends a signal, by its name, to all processes of the server.
    pub fn signal_all(&self, name: &str) {
        let line = format!("kill -{name} {} $(pgrep -P {})", self.pid(), self.pid());
        let _ = Command::new("bash").args(["-c", &line]).status();
    }

    /// `kill -9` of all processes. [`PostgresServer::restart`] starts it again.
    pub fn kill(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        // Again, because a process that was just forked is not killed with its parent. It would keep the data in use.
        loop {
            let processes = self.processes();
            if processes.is_empty() {
                return;
            }
            let _ = Command::new("kill").arg("-KILL").args(processes).stderr(Stdio::null()).status();
            assert!(Instant::now() < deadline, "the server does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// True while any of its processes runs.
    pub fn is_running(&self) -> bool {
        !self.processes().is_empty()
    }

    fn processes(&self) -> Vec<String> {
        processes_in(&self.folder.join("data"))
    }

    /// Starts it again at the same port, with the same data.
    pub fn restart(&mut self) {
        // A killed server leaves these files, and its process id may belong to another process by now.
        for file in [self.folder.join("data/postmaster.pid"), self.folder.join(format!(".s.PGSQL.{}.lock", self.port))]
        {
            let _ = fs::remove_file(file);
        }
        // The old keeper would remove the files of the new server.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        self.keeper = keep(&self.folder, self.port, self.ahead);
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.psql("postgres", "select 1").status.success() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not start:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Its keeper stops the server and removes the files.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Process ids of all processes of a server: each runs in the folder of its data.
pub fn processes_in(data: &Path) -> Vec<String> {
    let is_its_own = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(is_its_own).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Writes the file that `clock.so` reads. In place, because it is mapped.
pub fn set_clock(folder: &Path, millis: i64) {
    let file = fs::OpenOptions::new().write(true).open(folder.join("clock.millis"));
    file.and_then(|mut file| file.write_all(&millis.to_ne_bytes())).expect("written");
}

fn keep(folder: &Path, port: u16, ahead: i32) -> Child {
    let mut keeper = Command::new("bash");
    if folder.join("clock.so").exists() {
        keeper.env("LD_PRELOAD", folder.join("clock.so")).env("BEARWARD_CLOCK", ahead.to_string());
        keeper.env("BEARWARD_CLOCK_FILE", folder.join("clock.millis"));
    }
    keeper.args(["-c", KEEPER]).arg(folder);
    let server = command("postgres");
    keeper.arg(server.get_program()).args(server.get_args()).arg("-D").arg(folder.join("data"));
    keeper.args(["-p", &port.to_string(), "-h", "127.0.0.1"]).stdin(Stdio::piped());
    keeper.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bash is there")
}

/// Makes root the user of the server.
pub fn as_user() -> [String; 4] {
    ["setpriv".into(), format!("--reuid={UNPRIVILEGED}"), format!("--regid={UNPRIVILEGED}"), "--clear-groups".into()]
}

/// A program of PostgreSQL, as a user who may run it.
pub fn command(program: &str) -> Command {
    let path = binary(program);
    if !is_root() {
        return Command::new(path);
    }
    let [setpriv, arguments @ ..] = as_user();
    let mut command = Command::new(setpriv);
    command.args(arguments).arg(path).current_dir("/");
    command
}

/// Names a folder with programs of another version. What it lacks, the newest installed version has.
const FOLDER: &str = "BEARWARD_POSTGRES";

/// Debian keeps the servers of each version in a folder of its own, outside of the PATH.
pub fn binary(program: &str) -> PathBuf {
    let chosen = std::env::var_os(FOLDER).map(|folder| Path::new(&folder).join(program));
    if let Some(path) = chosen.filter(|path| path.exists()) {
        return path;
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(program)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| program.into())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A folder that the user of the server owns.
pub fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let name = format!("bearward-postgres-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("created");
    own(&folder);
    folder
}

fn tempfile_in(folder: &Path, name: &str) -> fs::File {
    let path = folder.join(name);
    let file = fs::File::create(&path).expect("created");
    own(&path);
    file
}

/// Gives a file or folder to the user of the server.
pub fn own(path: &Path) {
    if is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may do this");
    }
}
