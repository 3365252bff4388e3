//! Reads what a gateway writes: metrics, access log and audit log.

use serde_json::Value;

use super::Gateway;
use crate::support::client::Client;
use crate::support::secrets;
use crate::support::wait::eventually_ok;

impl Gateway {
    /// Shuts down gracefully. Asserts that no token is in the access log.
    pub fn drain_and_check_log(mut self) {
        self.drain();
        self.secrets.assert_absent_from("the access log", &self.file("access.log"));
    }

    /// What gateways of this process have logged since this one started.
    pub fn logged(&self) -> String {
        secrets::logged_since(self.log_start)
    }

    /// Waits until a metric has this value. The gateway can update it shortly after the client has its response.
    pub async fn wait_for_metric(&self, name: &str, count: u64) {
        let metric = format!("bearward_{name} ");
        // Some are written as 1, others as 1.0.
        let is_count = |value: &str| value.parse() == Ok(count as f64);
        eventually_ok(&format!("/metrics has {metric}{count}"), async || {
            let page = self.admin_client().get("/metrics").await.text();
            if page.lines().any(|line| line.strip_prefix(&metric).is_some_and(is_count)) { Ok(()) } else { Err(page) }
        })
        .await;
    }

    /// The value of the first metric with a line that starts with `name`.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = Client::http1(self.admin_address()).host("localhost").get("/metrics").await.text();
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// Waits until the audit log has at least `count` events. Returns all of them.
    pub async fn audit_events(&self, count: usize) -> Vec<Value> {
        parsed(&self.lines_of("audit.jsonl", count).await)
    }

    /// Waits until the access log has at least `count` lines. Returns all of them.
    pub async fn log_lines(&self, count: usize) -> Vec<Value> {
        parsed(&self.log_text(count).await)
    }

    /// Waits until a line of the access log fulfils `condition`. Returns the first one.
    pub async fn log_line(&self, condition: impl Fn(&Value) -> bool) -> Value {
        let mut lines = 1;
        loop {
            let logged = self.log_lines(lines).await;
            lines = logged.len() + 1;
            if let Some(line) = logged.into_iter().find(&condition) {
                return line;
            }
        }
    }

    /// As [`Gateway::log_lines`]. Returns the text.
    pub async fn log_text(&self, count: usize) -> String {
        self.lines_of("access.log", count).await
    }

    /// Waits until a file has at least `count` complete lines. Returns all of them.
    async fn lines_of(&self, name: &str, count: usize) -> String {
        let path = self.folder.path().join(name);
        eventually_ok(&format!("{name} has {count} lines"), async || {
            let mut text = std::fs::read_to_string(&path).unwrap_or_default();
            // The last line may be incomplete while the gateway writes it.
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            if text.lines().count() >= count { Ok(text) } else { Err(text) }
        })
        .await
    }
}

fn parsed(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}
