//! Opens the database: for one gateway at a time, readable only by its owner, with durable commits.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{process, thread};

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};

use crate::store::error::StoreError;
use crate::store::sqlite::own_files::{OwnFiles, beside};
use crate::store::sqlite::schema;
use crate::types::barrier::{Barrier, barrier};
use crate::types::owner::{self, User};
use crate::types::process::user;
use crate::types::regular_file;

/// How long a batch waits for the lock of another program, such as an `sqlite3` shell. All calls wait with it.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// Size of the cache of prepared statements. Larger than the number of statements, so that each is compiled once.
const STATEMENT_CACHE: usize = 64;

/// Maximum size of the `-wal` that remains after a checkpoint: twice the size at which SQLite makes one.
const WAL_SIZE_LIMIT: i64 = 8 * 1024 * 1024;

/// The open database.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) files: OwnFiles,
    /// Declared after the connection, so that it is released after the connection is closed.
    _lock: File,
}

/// Opens the database at `path`, or creates it. Waits at most `lock_timeout` for another gateway to close it.
pub(super) fn open(path: &Path, lock_timeout: Duration) -> Result<Opened, StoreError> {
    let path = resolve(path)?;
    let with_path = |error: StoreError| StoreError::new(format!("{}: {error}", path.display()));
    // The lock comes first: a gateway without the lock must not touch the file.
    let lock = lock(&path, lock_timeout)?;
    check_nothing_is_left(&path)?;
    create(&path).map_err(with_path)?;
    let connection = connect(&path).map_err(with_path)?;
    let files = OwnFiles::of(&path).map_err(|error| with_path(StoreError::new(error.to_string())))?;
    Ok(Opened { connection, files, _lock: lock })
}

/// Opens the database at `path` read-only, also while a gateway has it open. `None` if it does not exist or is empty.
pub(super) fn open_read_only(path: &Path) -> Result<Option<Connection>, StoreError> {
    if !path.exists() {
        return Ok(None);
    }
    let with_path = |error: StoreError| StoreError::new(format!("{}: {error}", path.display()));
    let open = || {
        check_kind(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // SQLite looks for the log beside the file itself, not beside a link to it.
        let path = resolve(path)?;
        // Also an empty log: a gateway has the database open, or was killed. A gateway that moves its commits into the
        // file meanwhile would make a file that is read as it is look damaged.
        let connection = if beside(&path, "-wal").exists() {
            Connection::open_with_flags(path, flags)?
        } else {
            Connection::open_with_flags(as_it_is(&path), flags | OpenFlags::SQLITE_OPEN_URI)?
        };
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(schema::identify(&connection)?.is_initialized().then_some(connection))
    };
    open().map_err(with_path)
}

/// Fails if there are changes without their database, which SQLite would make in the next one of this name.
fn check_nothing_is_left(path: &Path) -> Result<(), StoreError> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let is_left = |ending: &&str| fs::metadata(beside(path, ending)).is_ok_and(|left| left.len() > 0);
    let Some(ending) = ["-wal", "-journal"].into_iter().find(|ending| is_left(ending)) else { return Ok(()) };
    let shown = path.display();
    Err(StoreError::new(format!(
        "{shown} does not exist, but {shown}{ending} has its newest changes; move the database back, or restore it from \
         its backup (deploy/backup.md), or remove the {ending} to begin with a new database"
    )))
}

/// A URI by which SQLite reads only the file at this canonical path (sqlite.org/uri.html). By its path, it would create
/// a `-wal` and a `-shm` of the user who reads.
fn as_it_is(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            uri.push(char::from(*byte))
        } else {
            uri.push_str(&format!("%{byte:02X}"))
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Returns true if there is no database yet. Fails if one was emptied, or if only its log is left: what was in it is
/// lost, and a start would hide that.
pub(super) fn is_new(path: &Path) -> Result<bool, StoreError> {
    let path = &resolve(path)?;
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => Err(StoreError::new(format!(
            "{shown} has 0 bytes, and no gateway leaves such a database; restore it from its backup \
             (deploy/backup.md), or remove the file to begin with a new database"
        ))),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => check_nothing_is_left(path).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// The canonical path, so that two names of the same file cannot get two locks.
fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    match fs::canonicalize(path) {
        Ok(known) => return Ok(known),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::new(format!("{}: {error}", path.display()))),
    }
    let name =
        path.file_name().ok_or_else(|| StoreError::new(format!("{} is not the name of a file", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder)
        .map_err(|error| StoreError::new(format!("cannot open the folder of {}: {error}", path.display())))?;
    Ok(folder.join(name))
}

/// Locks a separate file beside the database, so that `sqlite3` can still read the database.
fn lock(path: &Path, timeout: Duration) -> Result<File, StoreError> {
    let name = beside(path, ".lock");
    let failed = |error: std::io::Error| {
        StoreError::new(format!(
            "{}: cannot use the lock file {}: {error}; make the file and its folder writable for the gateway's user{}",
            path.display(),
            name.display(),
            of_another(&name)
        ))
    };

    let mut file = open_lock(&name, path).map_err(failed)?;
    let deadline = Instant::now() + timeout;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            // Polled, because a blocking lock has no timeout.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return Err(in_use(path, file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", process::id())).map_err(failed)?;
    Ok(file)
}

/// Opens the lock file, or creates it. It may be in a folder of another user, who could have put a link to a file of
/// root there: root must neither write to that one nor give it away.
fn open_lock(name: &Path, database: &Path) -> io::Result<File> {
    match private().read(true).write(true).create_new(true).open(name) {
        Ok(new) => {
            // A command of root leaves the files of a gateway to the user of the gateway. SQLite does so itself.
            if let Ok(database) = fs::metadata(database) {
                owner::keep(&new, &database)?;
            }
            Ok(new)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            private().read(true).write(true).custom_flags(regular_file::no_link()).open(name)
        }
        Err(error) => Err(error),
    }
}

/// Who has this file, if that is another user than that of the process.
fn of_another(path: &Path) -> String {
    match barrier(path).filter(|found| found.owner != User(user())) {
        Some(Barrier { path, owner }) => format!(" ({} belongs to {owner})", path.display()),
        None => String::new(),
    }
}

fn in_use(path: &Path, mut lock: File) -> StoreError {
    let mut holder = String::new();
    // The process id only helps the operator; the message is correct without it.
    let _ = lock.read_to_string(&mut holder);
    let holder = holder.trim();
    let holder = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
    StoreError::new(format!(
        "{} is in use by a running gateway{holder}; stop that gateway first (a second gateway needs another file in \
         store.sqlite)",
        path.display()
    ))
}

/// Creates the database if it does not exist. It gets its name when it is complete: a gateway that is killed leaves no
/// file of 0 bytes, which [`is_new`] rejects.
fn create(path: &Path) -> Result<(), StoreError> {
    check_kind(path)?;
    // A link to nowhere is left to SQLite, which reports it.
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let failed = |error: io::Error| StoreError::new(format!("cannot create the database: {error}"));
    let new = beside(path, ".new");
    // What a killed start has left.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // It has mode 0600 before SQLite writes to it. SQLite gives the same mode to the files beside it.
    let file = private().write(true).create_new(true).open(&new).map_err(failed)?;
    fill(&new)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let named = file.sync_all().and_then(|()| fs::rename(&new, path)).and_then(|()| File::open(folder)?.sync_all());
    named.map_err(failed)
}

/// Writes the tables without a journal: a crash leaves a file that the next start removes.
fn fill(new: &Path) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(new, flags)?;
    set(&connection, "journal_mode", "off", "off".to_string())?;
    set(&connection, "synchronous", "off", 0)?;
    let found = schema::identify(&connection)?;
    schema::migrate(&mut connection, found)
}

/// SQLite would wait for ever for a named pipe.
fn check_kind(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Err(StoreError::new("this is a folder; set store.sqlite to a file"));
    }
    for end in ["", "-wal", "-shm", "-journal"] {
        let name = beside(path, end);
        if fs::metadata(&name).is_ok_and(|found| !found.is_file()) {
            return Err(StoreError::new(format!("{} is not a regular file; move it away", name.display())));
        }
    }
    Ok(())
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    // Without SQLITE_OPEN_URI, so that a path that begins with "file:" is still a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Before the first write, so that the database of another program is not changed.
    let found = schema::identify(&connection)?;

    // One flush for each commit, and readers do not block the writer.
    set(&connection, "journal_mode", "wal", "wal".to_string())?;
    // Flushes at every commit. With less, SQLite can lose acknowledged commits in WAL mode.
    set(&connection, "synchronous", "full", 2)?;
    // A reader that blocks checkpoints makes the -wal grow. After it, the file shrinks to this size again.
    set(&connection, "journal_size_limit", &WAL_SIZE_LIMIT.to_string(), WAL_SIZE_LIMIT)?;
    // Temporary data stays in memory, so that a full /tmp has no effect.
    set(&connection, "temp_store", "memory", 2)?;
    schema::migrate(&mut connection, found)?;
    // SQLite creates the -wal of a new database at the first look at it. `OwnFiles` must find it.
    schema::identify(&connection)?;
    Ok(connection)
}

/// Sets a pragma and reads it back, because SQLite ignores a pragma that it cannot apply.
fn set<T: FromSql + PartialEq>(
    connection: &Connection,
    name: &str,
    value: &str,
    expected: T,
) -> Result<(), StoreError> {
    connection.pragma_update(None, name, value)?;
    let now: T = connection.pragma_query_value(None, name, |row| row.get(0))?;
    if now != expected {
        return Err(StoreError::new(format!(
            "SQLite cannot set {name} = {value} here, which safe commits need; put the database on a local disk"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_nowhere_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("new.db");
        let link = folder.path().join("link.db");
        assert!(resolve(&own).is_ok_and(|path| path.file_name() == own.file_name()), "a new file");
        std::os::unix::fs::symlink(&link, &link).expect("a link");
        for (path, message) in [
            (link.clone(), "link.db: "),
            (folder.path().join("other/new.db"), "cannot open the folder of "),
            (folder.path().join(".."), ""),
        ] {
            let error = resolve(&path).err().map(|error| error.message);
            assert_eq!(error.is_some_and(|error| error.contains(message)), !message.is_empty(), "{}", path.display());
        }
        let error = create(&folder.path().join("other/new.db")).err().map(|error| error.message);
        assert!(error.is_some_and(|error| error.starts_with("cannot create the database: ")));
        assert!(create(&own).is_ok() && create(&own).is_ok(), "also if it exists");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, message) in [("new.db", "this is a folder"), ("new.db-wal", "new.db-wal is not a regular file")] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
            let error = create(&folder.path().join("new.db")).err().map(|error| error.message);
            assert!(error.is_some_and(|error| error.contains(message)), "{name}");
            std::fs::remove_dir(folder.path().join(name)).expect("removed");
        }
        assert!(create(&folder.path().join("new.db")).is_ok());
    }

    /// As it is, the file would hide the commits of a gateway that has not written since it started, and look damaged
    /// once that moves them into it.
    #[test]
    fn a_reader_sees_what_a_gateway_commits_after_its_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new.db");
        let opened = open(&path, Duration::ZERO).expect("opens");
        assert_eq!(std::fs::metadata(beside(&path, "-wal")).expect("it exists").len(), 0);
        let reader = open_read_only(&path).expect("opens").expect("it is initialized");
        let sql = "insert into meta (name, value) values ('commit', 1)";
        assert_eq!(opened.connection.execute(sql, []).expect("writes"), 1);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let sql = "select count(*) from meta where name = 'commit'";
        assert_eq!(reader.query_row(sql, [], count).expect("reads"), 1);
    }
}
