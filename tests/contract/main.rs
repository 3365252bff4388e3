//! What the gateway relies on in hyper, h2 and rustls beyond what their documentation promises.
//!
//! Each test checks one behavior of a library without the gateway, and names the file that relies on it. If a test
//! fails after an upgrade, its name says what has changed. Read the file, then change it together with the test. Some
//! of these behaviors make code necessary: if one of them ends, the code can go.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for other tests` here; nothing is exported")]

mod frames;
mod h2_limits;
mod hyper_client;
mod hyper_http1;
mod hyper_http2;
mod pipe;
mod rustls;
