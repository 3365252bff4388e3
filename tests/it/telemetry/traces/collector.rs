//! The collector in `collector.py`, and a gateway that sends its spans there.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::GatewayProcess;
use crate::support::source;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

/// Decodes what it gets with the messages of OpenTelemetry. Ends with the test.
pub(super) struct Collector {
    child: Child,
    pub(super) port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    /// `statuses`: of its responses, of which the last one repeats.
    pub(super) fn start(statuses: &[&str]) -> Collector {
        let modules = source::root().join("target/otlp");
        assert!(modules.exists(), "the messages of OTLP are missing: run tests/run");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(source::root().join("tests/it/telemetry/traces/collector.py")).arg(modules).args(statuses);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3 is there");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let port = lines.next().and_then(|port| port.parse().ok()).expect("its port");
        let requests = Arc::<Mutex<Vec<Value>>>::default();
        let received = requests.clone();
        std::thread::spawn(move || {
            for line in lines {
                let request = serde_json::from_str(&line).expect("JSON");
                received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            }
        });
        Collector { child, port, requests }
    }

    pub(super) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The spans of all requests that it accepted.
    pub(super) fn spans(&self) -> Vec<Value> {
        let accepted = self
            .requests()
            .into_iter()
            .filter(|request| request["status"].as_str().is_some_and(|status| status.starts_with("200")));
        accepted.flat_map(|request| request["spans"].as_array().cloned().unwrap_or_default()).collect()
    }

    /// Waits until it has at least `count` spans. Returns all of them.
    pub(super) async fn wait_for(&self, count: usize) -> Vec<Value> {
        eventually_ok(&format!("the collector has {count} spans"), async || {
            let spans = self.spans();
            if spans.len() >= count { Ok(spans) } else { Err(format!("{spans:#?}")) }
        })
        .await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `[trace]` with this collector.
pub(super) fn section(collector: &Collector, keys: &str) -> String {
    format!("[trace]\nendpoint = \"http://127.0.0.1:{}/v1/traces\"\n{keys}\n", collector.port)
}

/// A gateway with one worker and a public route.
pub(super) fn gateway(upstream: &Upstream, collector: &Collector, keys: &str, more: &str) -> Gateway {
    let trace = section(collector, keys);
    Gateway::public_single_worker(upstream.address, &format!("{trace}{more}"))
}

/// A gateway as a process of its own, which has the clock of the machine. All is sampled.
pub(super) fn process(upstream: &Upstream, collector: &Collector) -> (TempDir, GatewayProcess) {
    let folder = TempDir::new().expect("a folder");
    let config = Gateway::public_config(upstream.address, &section(collector, "sample = \"100%\""));
    std::fs::write(folder.path().join("gateway.toml"), config).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    (folder, gateway)
}

/// Waits until the gateway knows that the spans of this many requests were accepted.
pub(super) async fn sent(gateway: &Gateway, count: f64) {
    eventually_ok("the spans are accepted", async || {
        let sent = gateway.metric("bearward_trace_sent_total").await;
        if sent == count { Ok(()) } else { Err(sent.to_string()) }
    })
    .await;
}
