//! The real Prometheus scrapes a gateway, and answers a query about each metric.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::house::source;
use crate::support::ports::free_port;
use crate::support::postgres::PostgresServer;
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Client, Gateway, Upstream};

/// Ends with the test.
struct Prometheus {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Prometheus {
    fn start(targets: &[String]) -> Prometheus {
        let (folder, port) = (TempDir::new().expect("a folder"), free_port());
        let targets = targets.iter().map(|target| format!("'{target}'")).collect::<Vec<_>>().join(", ");
        let config = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: bearward\n  static_configs:\n  \
             - targets: [{targets}]\n"
        );
        fs::write(folder.path().join("prometheus.yml"), config).expect("written");
        let mut command = Command::new("prometheus");
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).args(["--log.level=warn"]);
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]).current_dir(folder.path());
        let child = command.stdout(Stdio::null()).spawn().expect("tests/run installs it");
        Prometheus { child, port, _folder: folder }
    }

    /// The samples that a query finds.
    async fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        // It has no connection yet while it starts.
        let address = ([127, 0, 0, 1], self.port).into();
        tokio::net::TcpStream::connect(address as std::net::SocketAddr).await.map_err(|error| error.to_string())?;
        let answer = Client::http1(address).host("localhost").get(&format!("/api/v1/query?query={query}")).await;
        if answer.status != 200 {
            return Err(answer.text());
        }
        let result = answer.json()["data"]["result"].as_array().cloned();
        result.filter(|samples| !samples.is_empty()).ok_or(answer.text())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn prometheus_answers_a_query_about_each_metric() {
    let upstream = Upstream::start();
    let store = format!("[store]\n{}", PostgresServer::shared().store_keys());
    let gateway = Gateway::with_config(&upstream, &store);
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    let prometheus = Prometheus::start(&[gateway.admin_address().to_string()]);
    eventually_within(std::time::Duration::from_secs(60), "Prometheus has scraped", async || {
        prometheus.query("up").await.map(drop)
    })
    .await;
    let up = prometheus.query("up").await.expect("it was scraped");
    assert_eq!(up[0]["value"][1], "1", "{up:?}");
    let page = source::read("deploy/monitoring.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Metrics\n")).expect("a section");
    let mut asked = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let names = row.split('|').nth(1).expect("a column").split('`').skip(1).step_by(2).map(str::to_owned);
        for name in names {
            // A gateway without issuers and rollbacks has no samples of these.
            if name.starts_with("bearward_issuer_") {
                continue;
            }
            let query = if name.ends_with("_duration_seconds") { format!("{name}_bucket") } else { name };
            eventually_ok(&query, async || prometheus.query(&query).await.map(drop)).await;
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} metrics were found");
}
