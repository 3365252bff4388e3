//! The user and the browser: `tests/it/mcp/visit.mjs`, which clients start as `xdg-open`, and which tells the test
//! where it is.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the browser is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// It opens the page that a client asks for.
    Open,
    /// It comes back from the provider.
    SignedIn,
    /// The user agrees.
    Consent,
    /// It brings the code to the client, which redeems it.
    Callback,
}

pub struct Browser {
    address: SocketAddr,
    opened: Arc<AtomicUsize>,
}

impl Browser {
    /// `at` runs before each moment, and the browser waits for it.
    pub fn start(at: impl Fn(Moment) + Send + 'static) -> Browser {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let opened = Arc::new(AtomicUsize::new(0));
        let counted = opened.clone();
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(moment) = read(&stream) else { continue };
                if moment == Moment::Open {
                    counted.fetch_add(1, Ordering::AcqRel);
                }
                at(moment);
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = (&stream).write_all(response);
            }
        });
        Browser { address, opened }
    }

    /// How many pages clients have opened.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Acquire)
    }

    /// Puts it into this folder, as the program that opens pages.
    pub fn install(&self, folder: &Path) {
        std::fs::write(folder.join("visit.mjs"), include_str!("../mcp/visit.mjs")).expect("written");
        let opener = folder.join("xdg-open");
        // It returns at once, as that of a desktop does: clients listen for the code only then.
        let script = format!(
            "#!/bin/sh\nMOMENTS=http://{} node {folder}/visit.mjs \"$1\" >>{folder}/browser.log 2>&1 </dev/null &\n",
            self.address,
            folder = folder.display(),
        );
        std::fs::write(&opener, script).expect("written");
        std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755)).expect("its mode");
    }
}

/// `None` for the request of another party: the port may have been that of a server that has ended.
fn read(stream: &TcpStream) -> Option<Moment> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    match line.split(' ').nth(1)? {
        "/open" => Some(Moment::Open),
        "/signed_in" => Some(Moment::SignedIn),
        "/consent" => Some(Moment::Consent),
        "/callback" => Some(Moment::Callback),
        _ => None,
    }
}
