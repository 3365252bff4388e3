//! Opening the file: one gateway at a time, readable by its owner only, and set up so that a commit is durable.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{process, thread};

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};

use crate::store::StoreError;
use crate::store::sqlite::schema;

/// How long a batch waits for another program, say an `sqlite3` shell, to let go of the file. Everybody waits with it.
const PATIENCE: Duration = Duration::from_millis(500);
/// More than there are statements in this store, so that each is compiled once.
const STATEMENTS: usize = 64;

/// The open database.
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// Declared after the connection: released when that is closed.
    _lock: File,
}

/// Opens the database at `path`; creates it if there is none. Another gateway may take so long to let go of it.
pub(super) fn open(path: &Path, patience: Duration) -> Result<Opened, StoreError> {
    let path = resolve(path)?;
    let in_this_file = |error: StoreError| StoreError::new(format!("{}: {error}", path.display()));
    // The lock comes first: whoever does not get it must not so much as touch the file.
    let lock = lock(&path, patience)?;
    create(&path).map_err(in_this_file)?;
    let connection = connect(&path).map_err(in_this_file)?;
    Ok(Opened { connection, _lock: lock })
}

/// The database at `path` beside whoever has it open; `None` if there is nothing in it yet.
pub(super) fn open_to_read(path: &Path) -> Result<Option<Connection>, StoreError> {
    if !path.exists() {
        return Ok(None);
    }
    let in_this_file = |error: StoreError| StoreError::new(format!("{}: {error}", path.display()));
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        Ok(schema::identify(&connection)?.is_ours().then_some(connection))
    };
    open().map_err(in_this_file)
}

/// One name a file, whichever way it was written, so that two names cannot get two locks.
fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    match fs::canonicalize(path) {
        Ok(known) => return Ok(known),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::new(format!("{}: {error}", path.display()))),
    }
    let name = path.file_name().ok_or_else(|| StoreError::new(format!("{} is not a file's name", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder)
        .map_err(|error| StoreError::new(format!("the folder of {} cannot be used: {error}", path.display())))?;
    Ok(folder.join(name))
}

/// Takes the lock beside the database. It is not on the database itself, so that `sqlite3` can read that meanwhile.
fn lock(path: &Path, patience: Duration) -> Result<File, StoreError> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let failed = |error: std::io::Error| {
        StoreError::new(format!(
            "{}: its lock file {} cannot be used: {error}; the gateway's user needs to write to it and to its folder",
            path.display(),
            Path::new(&name).display()
        ))
    };

    let mut file =
        private().read(true).write(true).create(true).truncate(false).open(Path::new(&name)).map_err(failed)?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            // Asked again and again: to wait for a lock has no end of its own.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return Err(in_use(path, file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", process::id())).map_err(failed)?;
    Ok(file)
}

fn in_use(path: &Path, mut lock: File) -> StoreError {
    let mut holder = String::new();
    // The number only helps the operator; without it the message is as true.
    let _ = lock.read_to_string(&mut holder);
    let holder = holder.trim();
    let holder = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
    StoreError::new(format!(
        "{} is in use by a running gateway{holder}: a database file serves one at a time; several share PostgreSQL",
        path.display()
    ))
}

/// Makes the file if there is none, so that it has its permissions before SQLite writes to it. SQLite gives the same
/// ones to the files that it puts beside.
fn create(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Err(StoreError::new("this is a folder, not a file"));
    }
    match private().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::new(format!("cannot be created: {error}"))),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    // Without SQLITE_OPEN_URI: a path is a path, also one that begins with "file:".
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Before the first write: a file of somebody else's stays as it is.
    let found = schema::identify(&connection)?;

    // One flush a commit, and readers beside the writer.
    set(&connection, "journal_mode", "wal", "wal".to_string())?;
    // Flushes at every commit. SQLite calls less than this safe in WAL mode, and loses acknowledged commits with it.
    set(&connection, "synchronous", "full", 2)?;
    // What SQLite notes for undoing a statement goes to memory: a full /tmp is none of our business.
    set(&connection, "temp_store", "memory", 2)?;
    schema::bring_up_to_date(&mut connection, found)?;
    Ok(connection)
}

/// Sets a pragma and reads it back: SQLite does not fail on one that it does not heed.
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
            "SQLite does not accept {name} = {value} here, without which a commit is not safe; is this a local disk?"
        )));
    }
    Ok(())
}
