//! The real Prometheus scrapes a gateway, and answers a query about each metric, and those of `deploy/grafana.json`.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::{Clock, SystemClock};
use bearward::types::secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::alerts::{documented_metrics, metric_names};

use crate::server::acme::gateway_without_authority;
use crate::support::certificates::Authority;
use crate::support::ports::free_port;
use crate::support::postgres::PostgresServer;
use crate::support::source;
use crate::support::tokens::Mint;
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Client, Gateway, KeyServer, OidcProvider, Upstream};

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
        let query = query.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
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

/// A gateway that is scraped, beside one with `acme`. It has an `[[issuer]]`, a `[[provider]]`, an `[[oauth.client]]`,
/// an `[[event_stream]]`, health checks, a revocation list and PostgreSQL, and so all metrics.
async fn scraped(upstream: &Upstream, keys: &KeyServer) -> ([Gateway; 2], Prometheus) {
    let folder = TempDir::new().expect("a folder");
    let authorization = folder.path().join("authorization");
    secret::write_private(&authorization, "Bearer 0123456789abcdef0123456789abcdef".as_bytes()).expect("written");
    let provider = OidcProvider::start(&json!({}));
    let text = format!(
        "[oauth]\ntoken_endpoint = \"/oauth/token\"\n[[oauth.client]]\nclient_id = \"ci\"\n\
         jwks_url = \"{keys}\"\nalgorithms = [\"ES256\"]\n\
         [[provider]]\nname = \"login\"\nissuer = \"{}\"\nclient_id = \"a\"\nclient_auth = \"none\"\n\
         [upstream.health_check]\npath = \"/healthz\"\n[store]\n{}\n[[issuer]]\nissuer = \"https://login.example\"\n\
         audience = [\"a\"]\nalgorithms = [\"ES256\"]\njwks_url = \"{keys}\"\n[[event_stream]]\nname = \"corp\"\n\
         issuer = \"https://login.example\"\naudience = \"https://gateway.example/events\"\n\
         poll_url = \"{keys}\"\n\
         algorithms = [\"ES256\"]\njwks_url = \"{keys}\"\nauthorization_file = \"{}\"\n",
        provider.issuer,
        PostgresServer::shared().store_keys(),
        authorization.display(),
        keys = keys.url("/keys"),
    );
    let authority = Authority::new();
    let list = authority.revocation_list(&[], SystemClock.now().as_secs() + 86_400);
    let gateway = Gateway::with_revocation_list(upstream, &authority, &list, &text);
    eventually_ok("it has the keys of the provider", async || {
        let text = Client::http1(gateway.admin_address()).host("localhost").get("/metrics").await.text();
        if text.contains("bearward_provider_keys_age_seconds{") { Ok(()) } else { Err(text) }
    })
    .await;
    let gateways = [gateway, gateway_without_authority(upstream).await];
    let prometheus = Prometheus::start(&gateways.each_ref().map(|gateway| gateway.admin_address().to_string()));
    eventually_within(Duration::from_secs(60), "Prometheus has scraped", async || {
        prometheus.query("up").await.map(drop)
    })
    .await;
    let up = prometheus.query("up").await.expect("it was scraped");
    assert_eq!(up[0]["value"][1], "1", "{up:?}");
    (gateways, prometheus)
}

#[tokio::test]
async fn prometheus_answers_a_query_about_each_metric() {
    let (upstream, keys) = (Upstream::start(), KeyServer::start(&[&Mint::new(Algorithm::ES256)]));
    let ([gateway, _with_acme], prometheus) = scraped(&upstream, &keys).await;
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    let page = source::read("deploy/monitoring.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Metrics\n")).expect("a section");
    let mut asked = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let names = row.split('|').nth(1).expect("a column").split('`').skip(1).step_by(2).map(str::to_owned);
        for name in names {
            let is_histogram = row.contains("| histogram");
            let query = if is_histogram { format!("{name}_bucket") } else { name };
            eventually_ok(&query, async || prometheus.query(&query).await.map(drop)).await;
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} metrics were found");
}

/// All `expr` in the file, with the variables of Grafana replaced.
fn expressions(board: &Value) -> Vec<String> {
    match board {
        Value::Object(members) => {
            let own = members.get("expr").and_then(Value::as_str).map(|expr| {
                assert!(expr.contains("job=\"bearward\"") || expr.starts_with("ALERTS{"), "{expr}");
                expr.replace("$__rate_interval", "30s").replace("$instance", ".*")
            });
            own.into_iter().chain(members.values().flat_map(expressions)).collect()
        }
        Value::Array(entries) => entries.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn prometheus_answers_every_expression_of_the_board() {
    let board: Value = serde_json::from_str(&source::read("deploy/grafana.json")).expect("JSON");
    let expressions: Vec<_> = expressions(&board).into_iter().filter(|expr| !expr.starts_with("ALERTS")).collect();
    assert!(expressions.len() > 40, "{expressions:?}");
    let documented = documented_metrics();
    let unknown = |expr: &&String| !metric_names(expr).is_subset(&documented);
    assert_eq!(expressions.iter().find(unknown), None, "of a metric that is not in deploy/monitoring.md");

    let (upstream, keys) = (Upstream::start(), KeyServer::start(&[&Mint::new(Algorithm::ES256)]));
    let ([gateway, _with_acme], prometheus) = scraped(&upstream, &keys).await;
    let pair = gateway.issue("alice", "").await;
    let (client, stranger) = (gateway.client().bearer(&pair.access), gateway.client());
    let load = async {
        loop {
            assert_eq!(client.get("/").await.status, 200);
            assert_eq!(stranger.get("/").await.status, 401);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let queries = async {
        for expr in &expressions {
            let what = format!("Prometheus answers {expr}");
            eventually_within(Duration::from_secs(60), &what, async || {
                let samples = prometheus.query(expr).await?;
                let is_number = |sample: &Value| sample["value"][1].as_str().is_some_and(|value| value != "NaN");
                if samples.iter().any(is_number) { Ok(()) } else { Err(format!("{samples:?}")) }
            })
            .await;
        }
    };
    tokio::select! {
        () = queries => {}
        () = load => {}
    }
}
