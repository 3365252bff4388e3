//! The web server of a browser app: one page, and the libraries that it loads.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::certificates::Authority;
use crate::support::source;

const PAGE: &str = include_str!("../browser/page.html");

pub struct Site {
    pub address: SocketAddr,
    folder: TempDir,
    accepting: JoinHandle<()>,
}

impl Site {
    /// Over TLS. It serves every host.
    pub async fn start() -> Site {
        let libraries = source::root().join("target/browser/node_modules");
        assert!(libraries.is_dir(), "{} is missing; tests/run installs it", libraries.display());
        let folder = TempDir::new().expect("a folder");
        let signed = Authority::new().sign("app.example");
        signed.write(folder.path(), "site");
        let (acceptor, listener) = (signed.acceptor(), TcpListener::bind("127.0.0.1:0").await.expect("a free port"));
        let address = listener.local_addr().expect("an address");
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, libraries) = (acceptor.clone(), libraries.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| respond(request, libraries.clone()));
                    // How the connection ends does not matter to a test.
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Site { address, folder, accepting }
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("site.pem")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn respond(request: Request<Incoming>, libraries: PathBuf) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    let (kind, content) = match path.strip_prefix('/') {
        Some("") => ("text/html", Some(Bytes::from_static(PAGE.as_bytes()))),
        Some(file) if file.ends_with(".js") && !file.contains("..") => ("text/javascript", read(&libraries.join(file))),
        _ => ("text/plain", None),
    };
    let status = if content.is_some() { 200 } else { 404 };
    let response = Response::builder().status(status).header("content-type", kind);
    Ok(response.body(Full::new(content.unwrap_or_default())).expect("a response"))
}

fn read(file: &Path) -> Option<Bytes> {
    std::fs::read(file).ok().map(Bytes::from)
}
