//! Bodies flow: piece by piece as they come, and in no more memory than a few pieces need.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use tempfile::TempDir;

use crate::support::program::Served;
use crate::support::session::{self, Session};
use crate::support::{Gateway, Upstream};

const MIB: usize = 1 << 20;

/// Each piece is sent only when the one before has come back: nobody on the way can be waiting for more.
#[tokio::test]
async fn each_piece_goes_on_as_it_comes_up_and_down_again() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\""));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut session = Session::of(version, gateway.address()).await;
            let (pieces, body) = session::streamed();
            let request = Request::post("/mirror").body(body).expect("a request");
            pieces.send("the head goes with this").await;
            let mut answer = session.send(request).await.into_body();
            session::next_piece(&mut answer).await.expect("the first piece");
            for piece in ["one", "two", "three"] {
                pieces.send(piece).await;
                assert_eq!(
                    session::next_piece(&mut answer).await.expect("a piece"),
                    piece,
                    "{version:?} to {protocol}"
                );
            }
            drop(pieces);
            assert_eq!(session::next_piece(&mut answer).await, None);
        }
    }
}

/// The limit is a third of what passes through: whoever keeps a body fails, and a few windows and buffers do not.
#[tokio::test]
async fn a_large_body_takes_no_more_memory_than_a_small_one() {
    const LARGE: usize = 32 * MIB;
    const SPARE: usize = 10 * MIB;
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let folder = TempDir::new().expect("a temporary folder");
        let text = Gateway::open_text(upstream.address, &format!("protocol = \"{protocol}\""));
        std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
        let gateway = Served::start(folder.path());
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut session = Session::of(version, gateway.addresses[0]).await;
            assert_eq!(upload(&mut session, MIB).await, MIB);
            assert_eq!(download(&mut session, MIB).await, MIB);
            let before = gateway.program.peak_memory();
            assert_eq!(upload(&mut session, LARGE).await, LARGE);
            assert_eq!(download(&mut session, LARGE).await, LARGE);
            let grown = gateway.program.peak_memory() - before;
            assert!(grown < SPARE, "{version:?} to {protocol}: {grown} bytes more");
        }
    }
}

async fn upload(session: &mut Session, size: usize) -> usize {
    let (pieces, body) = session::streamed();
    tokio::spawn(async move {
        for _ in 0..size / MIB {
            pieces.send(Bytes::from_static(&[b'x'; MIB])).await;
        }
    });
    let answer = session.send(Request::post("/swallow").body(body).expect("a request")).await;
    session::text(answer.into_body()).await.parse().expect("how many bytes it was")
}

/// The client takes its time before it reads: a gateway that reads ahead has all of it by then.
async fn download(session: &mut Session, size: usize) -> usize {
    let request = Request::get(format!("/large/{size}")).body(session::empty()).expect("a request");
    let mut body = session.send(request).await.into_body();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut read = 0;
    while let Some(piece) = session::next_piece(&mut body).await {
        read += piece.len();
    }
    read
}
