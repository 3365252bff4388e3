//! A backend whose every answer is the story's own, in either protocol, and in the runtime of the story.

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

use super::session::Body;

pub struct Backend {
    pub address: SocketAddr,
    pub version: Version,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Backend {
    /// Every request is given to `answer`.
    pub async fn start<A, F>(version: Version, answer: A) -> Backend
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, version, answer.clone()));
            }
        });
        Backend { address, version, connections, accepting }
    }

    /// The line of configuration that it needs.
    pub fn protocol(&self) -> &'static str {
        if self.version == Version::HTTP_2 { "protocol = \"h2\"" } else { "protocol = \"http1\"" }
    }

    /// Connections that were opened to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve<A, F>(stream: TcpStream, version: Version, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    // How a connection ends is not what the story is about.
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
