//! A backend with responses that a test computes, over HTTP/1.1 or HTTP/2, in the runtime of the test.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::connection::Body;

pub struct Backend {
    pub address: SocketAddr,
    pub version: Version,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Backend {
    /// Calls `respond` for each request.
    pub async fn start<R, F>(version: Version, respond: R) -> Backend
    where
        R: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).expect("a socket");
                tokio::spawn(serve(stream, version, respond.clone()));
            }
        });
        Backend { address, version, connections, accepting }
    }

    /// The `protocol` key of its `[[upstream]]`.
    pub fn protocol(&self) -> &'static str {
        if self.version == Version::HTTP_2 { "protocol = \"h2\"" } else { "protocol = \"http1\"" }
    }

    /// Number of connections that were opened to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve<R, F>(stream: TcpStream, version: Version, respond: R)
where
    R: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let response = respond(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    // How the connection ends does not matter to a test.
    let _ = if version == Version::HTTP_2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(1 << 20)
            .serve_connection(TokioIo::new(stream), service)
            .await
    } else {
        hyper::server::conn::http1::Builder::new()
            .max_headers(200)
            .serve_connection(TokioIo::new(stream), service)
            .await
    };
}
