//! `deploy/alerts.yml`: a rule for each row of "What to watch", which fires when it should, and only then. Prometheus'
//! own `promtool` runs the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::source;

const RULES: &str = "deploy/alerts.yml";

/// Series of a gateway that works. A value is in the notation of `promtool`: `5+2x120` begins with 5 and grows by 2 in
/// each minute.
const HEALTHY: &[(&str, &str)] = &[
    ("up", "1x120"),
    ("bearward_ready", "1x120"),
    ("bearward_requests_total{status='2xx'}", "0+6000x120"),
    ("bearward_requests_total{status='5xx'}", "0+1x120"),
    ("bearward_request_duration_seconds_bucket{le='0.1'}", "0+6000x120"),
    ("bearward_request_duration_seconds_bucket{le='10'}", "0+6000x120"),
    ("bearward_request_duration_seconds_bucket{le='+Inf'}", "0+6000x120"),
    ("bearward_rejections_total{reason='expired'}", "0+100x120"),
    ("bearward_upstream_server_share{server='a'}", "1x120"),
    ("bearward_upstream_server_requests{server='a'}", "20x120"),
    ("bearward_upstream_server_failed_checks_total{server='a'}", "0x120"),
    ("bearward_upstream_server_ejections_total{server='a'}", "1x120"),
    ("bearward_upstream_server_retries_total{server='a'}", "0+2x120"),
    ("bearward_upstream_server_broken_responses_total{server='a'}", "0+1x120"),
    ("bearward_signing_key_rotation_seconds", "86400-60x120"),
    ("bearward_issuer_keys_age_seconds{issuer='i'}", "600x120"),
    ("bearward_client_keys_age_seconds{client='c'}", "600x120"),
    ("bearward_store_up", "1x120"),
    ("bearward_store_operation_seconds_bucket{operation='refresh',le='0.1'}", "0+600x120"),
    ("bearward_store_operation_seconds_bucket{operation='refresh',le='5'}", "0+600x120"),
    ("bearward_store_operation_seconds_bucket{operation='refresh',le='+Inf'}", "0+600x120"),
    ("bearward_store_operation_seconds_bucket{operation='sweep',le='0.1'}", "0+6x120"),
    ("bearward_store_operation_seconds_bucket{operation='sweep',le='5'}", "0+60x120"),
    ("bearward_store_operation_seconds_bucket{operation='sweep',le='+Inf'}", "0+60x120"),
    ("bearward_store_forked_total", "0x120"),
    ("bearward_revocations_lost", "0x120"),
    ("bearward_store_expired_age_seconds", "60x120"),
    ("bearward_event_stream_overdue{stream='s'}", "0x120"),
    ("bearward_event_stream_overdue{stream='s',instance='other'}", "1x120"),
    ("bearward_provider_reports_total{source='s',kind='session-revoked',outcome='revoked'}", "0+60x120"),
    ("bearward_provider_reports_total{source='s',kind='stream-updated',outcome='stopped'}", "1x120"),
    ("bearward_provider_calls_total{provider='p',call='code',outcome='good'}", "0+6x120"),
    ("bearward_provider_calls_total{provider='p',call='code',outcome='rejected'}", "0+1x120"),
    ("bearward_provider_calls_total{provider='p',call='refresh',outcome='failed'}", "0x120"),
    ("bearward_client_documents_total{outcome='fetched'}", "0+6x120"),
    ("bearward_client_documents_total{outcome='unreachable'}", "0+1x120"),
    ("bearward_codes_total{outcome='redeemed'}", "0+60x120"),
    ("bearward_codes_total{outcome='reused'}", "1x120"),
    ("bearward_streams_opened_total", "0+10x120"),
    ("bearward_streams_closed_total", "0+10x120"),
    ("bearward_streams_ended_total{reason='expired'}", "0+1x120"),
    ("bearward_connections_rejected_total", "3x120"),
    ("bearward_idle_connections_closed_total", "0+1x120"),
    ("bearward_slow_clients_disconnected_total", "0+1x120"),
    ("bearward_penalized_connections_rejected_total", "3x120"),
    ("bearward_address_connections_rejected_total", "3x120"),
    ("bearward_access_log_dropped_total", "3x120"),
    ("bearward_access_log_rejections_left_out_total", "3x120"),
    ("bearward_trace_dropped_total{reason='rate'}", "0+60x120"),
    ("bearward_trace_dropped_total{reason='queue'}", "3x120"),
    ("bearward_audit_lag_seconds", "0x120"),
    ("bearward_audit_failures_total", "1x120"),
    ("bearward_audit_lost_total", "0x120"),
    ("bearward_reload_succeeded", "1x120"),
    ("bearward_certificate_not_after_timestamp_seconds{listener='l'}", "5184000x120"),
    ("bearward_client_crl_next_update_timestamp_seconds{listener='l'}", "5184000x120"),
    ("bearward_acme_failures{name='n'}", "3x120"),
];

/// Alerts, and the series with which each of them fires, instead of or beside those of [`HEALTHY`].
const FIRING: &[(&str, &str, &str)] = &[
    ("BearwardDown", "up", "1x10 0x110"),
    ("BearwardNotReady", "bearward_ready", "1x10 0x110"),
    ("BearwardServerErrors", "bearward_requests_total{status='5xx'}", "0+600x120"),
    ("BearwardSlow", "bearward_request_duration_seconds_bucket{le='0.1'}", "0+60x120"),
    ("BearwardOverloaded", "bearward_rejections_total{reason='overloaded'}", "0+1x120"),
    ("BearwardConnectionsFull", "bearward_connections_rejected_total", "0+1x120"),
    ("BearwardConnectionsScarce", "bearward_idle_connections_closed_total", "0+60x120"),
    ("BearwardAddressConnectionsFull", "bearward_address_connections_rejected_total", "0+1x120"),
    ("BearwardManyStreams", "bearward_streams_opened_total", "20000+10x120"),
    ("BearwardStreamsExpire", "bearward_streams_ended_total{reason='expired'}", "0+120x120"),
    ("BearwardTokenReused", "bearward_rejections_total{reason='grant_reused'}", "0+1x120"),
    ("BearwardTokensForged", "bearward_rejections_total{reason='grant_forged'}", "0+5x120"),
    ("BearwardRevokedKeyUsed", "bearward_rejections_total{reason='key_revoked'}", "0+1x120"),
    ("BearwardKeyRotationOverdue", "bearward_signing_key_rotation_seconds", "0x120"),
    ("BearwardIssuerKeysOld", "bearward_issuer_keys_age_seconds{issuer='i'}", "0+60x120"),
    ("BearwardClientKeysOld", "bearward_client_keys_age_seconds{client='c'}", "0+60x120"),
    ("BearwardTokenServerFails", "bearward_rejections_total{reason='introspection_unavailable'}", "0+1x120"),
    ("BearwardIssuerKeysMissing", "bearward_rejections_total{reason='keys_unavailable'}", "0+1x120"),
    ("BearwardUnknownKeys", "bearward_rejections_total{reason='unknown_key'}", "0+60x120"),
    ("BearwardEventStreamSilent", "bearward_event_stream_overdue{stream='s'}", "1x120"),
    (
        "BearwardEventStreamStopped",
        "bearward_provider_reports_total{source='s',kind='stream-updated',outcome='stopped'}",
        "0x110 1x10",
    ),
    ("BearwardProviderFails", "bearward_provider_calls_total{provider='p',call='refresh',outcome='failed'}", "0+1x120"),
    ("BearwardProviderRejects", "bearward_provider_calls_total{provider='p',call='code',outcome='good'}", "5x120"),
    ("BearwardProviderReportsFail", "bearward_provider_reports_total{source='s',outcome='rejected'}", "0+1x120"),
    ("BearwardClientDocumentsFail", "bearward_client_documents_total{outcome='unreachable'}", "0+6x120"),
    ("BearwardCodeReused", "bearward_codes_total{outcome='reused'}", "0x100 1x20"),
    ("BearwardLoginsFail", "bearward_rejections_total{reason='login_capture'}", "0+1x120"),
    ("BearwardStoreUnavailable", "bearward_rejections_total{reason='store_unavailable'}", "0+1x120"),
    ("BearwardDatabaseTooOld", "bearward_rejections_total{reason='grant_ahead'}", "0+1x120"),
    ("BearwardRevocationsStale", "bearward_rejections_total{reason='revocations_stale'}", "0+1x120"),
    ("BearwardStoreDown", "bearward_store_up", "1x10 0x110"),
    ("BearwardStoreSlow", "bearward_store_operation_seconds_bucket{operation='refresh',le='0.1'}", "0+60x120"),
    ("BearwardStoreForked", "bearward_store_forked_total", "0x100 1x20"),
    ("BearwardRevocationsLost", "bearward_revocations_lost", "0x100 100x20"),
    ("BearwardSweepLate", "bearward_store_expired_age_seconds", "0+60x120"),
    ("BearwardUpstreamFailures", "bearward_rejections_total{reason='upstream_connect'}", "0+120x120"),
    ("BearwardResponsesBreakOff", "bearward_upstream_server_broken_responses_total{server='a'}", "0+120x120"),
    ("BearwardServerOut", "bearward_upstream_server_share{server='a'}", "0x120"),
    ("BearwardHealthChecksFail", "bearward_upstream_server_failed_checks_total{server='a'}", "0+1x120"),
    ("BearwardServerUnstable", "bearward_upstream_server_ejections_total{server='a'}", "0+1x120"),
    ("BearwardRetries", "bearward_upstream_server_retries_total{server='a'}", "0+600x120"),
    ("BearwardServerFull", "bearward_upstream_server_requests{server='a'}", "240x120"),
    ("BearwardAdminTokenWrong", "bearward_rejections_total{reason='admin_token_wrong'}", "0+1x120"),
    ("BearwardWrongSignatures", "bearward_rejections_total{reason='rate_limited'}", "0+60x120"),
    ("BearwardThrottled", "bearward_rejections_total{reason='failures_limited'}", "0+60x120"),
    ("BearwardSlowClients", "bearward_slow_clients_disconnected_total", "0+60x120"),
    ("BearwardHttp2Flood", "bearward_rejections_total{reason='http2_flood'}", "0+1x120"),
    ("BearwardAddressesBlocked", "bearward_penalized_connections_rejected_total", "0+1x120"),
    ("BearwardRateExceeded", "bearward_rejections_total{reason='quota_exceeded'}", "0+60x120"),
    ("BearwardTracesLost", "bearward_trace_dropped_total{reason='queue'}", "0+1x120"),
    ("BearwardAccessLogLosesLines", "bearward_access_log_dropped_total", "0+1x120"),
    ("BearwardAccessLogLeavesOut", "bearward_access_log_rejections_left_out_total", "0+1x120"),
    ("BearwardAuditWaits", "bearward_audit_lag_seconds", "0+60x120"),
    ("BearwardAuditLost", "bearward_audit_lost_total", "0+1x120"),
    ("BearwardReloadFailed", "bearward_reload_succeeded", "1x10 0x110"),
    ("BearwardCertificateExpires", "bearward_certificate_not_after_timestamp_seconds{listener='l'}", "864000x120"),
    ("BearwardAcmeFails", "bearward_acme_failures{name='n'}", "4x120"),
    ("BearwardRevocationListEnds", "bearward_client_crl_next_update_timestamp_seconds{listener='l'}", "432000x120"),
];

/// Read by Python, because no crate of ours reads YAML.
fn rules() -> Vec<Value> {
    let code = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let output = Command::new("/usr/bin/python3").args(["-c", code]).arg(source::root().join(RULES)).output();
    let read: Value = serde_json::from_slice(&output.expect("tests/run installs it").stdout).expect("YAML");
    let groups = read["groups"].as_array().expect("groups");
    groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
}

fn text<'r>(rule: &'r Value, member: &str) -> &'r str {
    rule[member].as_str().unwrap_or_else(|| panic!("{member} in {rule}"))
}

/// The names in a text that could be metrics.
pub fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("bearward_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// The metrics in the table of `deploy/monitoring.md`. A histogram has three series.
pub fn documented_metrics() -> BTreeSet<String> {
    let page = source::read("deploy/monitoring.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Metrics\n")).expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| metric_names(row.split('|').nth(1).expect("a column")));
    names
        .flat_map(|name| {
            if name.ends_with("_total") {
                vec![name]
            } else {
                ["", "_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")).into()
            }
        })
        .collect()
}

#[test]
fn each_row_of_the_page_has_its_alert() {
    let page = source::read("deploy/monitoring.md");
    let section = page.split("\n## ").find(|section| section.starts_with("What to watch\n")).expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let line = line.replace("\\|", "\0");
        let cells = line.trim_matches('|').split('|').map(|cell| cell.replace('\0', "|").replace('`', ""));
        cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    });
    let rows: BTreeMap<String, Vec<String>> = rows.map(|row| (row[0].clone(), row)).collect();
    let rules = rules();
    let alerts: Vec<&str> = rules.iter().map(|rule| text(rule, "alert")).collect();
    assert_eq!(alerts.iter().copied().collect::<BTreeSet<_>>(), rows.keys().map(String::as_str).collect());
    assert_eq!(alerts.len(), rows.len(), "no name is used twice");
    let documented = documented_metrics();
    for rule in &rules {
        let row = &rows[text(rule, "alert")];
        let annotations = &rule["annotations"];
        assert_eq!((text(annotations, "summary"), text(annotations, "look_at")), (&*row[2], &*row[3]));
        assert!(["critical", "warning", "info"].contains(&text(&rule["labels"], "severity")), "{rule}");
        let used = metric_names(text(rule, "expr"));
        assert!(used.is_subset(&documented), "{rule}");
        let watched = metric_names(&row[1]);
        let is_used = |name: &String| used.contains(name) || used.contains(&format!("{name}_bucket"));
        assert!(watched.iter().all(is_used), "{rule} does not have all of {watched:?}");
    }
}

/// What the board asks for, to show alerts in its plots.
fn alerts_of_the_board() -> String {
    let board: Value = serde_json::from_str(&source::read("deploy/grafana.json")).expect("JSON");
    text(&board["annotations"]["list"][0], "expr").to_owned()
}

fn series(name: &str, values: &str) -> Value {
    let (metric, labels) = name.strip_suffix('}').and_then(|name| name.split_once('{')).unwrap_or((name, ""));
    let instance = if labels.contains("instance=") { "" } else { "instance='gateway'," };
    let labels = format!("job='bearward',{instance}{labels}");
    json!({ "series": format!("{metric}{{{}}}", labels.trim_end_matches(',')), "values": values })
}

/// A test for `promtool`, in which these alerts fire after two hours, and no other.
fn case(name: &str, changed: Option<(&str, &str)>, firing: &[&str]) -> Value {
    let kept = HEALTHY.iter().filter(|(series, _)| changed.is_none_or(|(changed, _)| changed != *series));
    let series: Vec<Value> = kept.chain(changed.iter()).map(|(name, values)| series(name, values)).collect();
    let samples: Vec<_> =
        firing.iter().map(|alert| json!({ "labels": format!("{{alertname='{alert}'}}"), "value": 1 })).collect();
    let expr = format!("count by (alertname) ({})", alerts_of_the_board());
    let query = json!({ "expr": expr, "eval_time": "119m", "exp_samples": samples });
    json!({ "name": name, "interval": "1m", "input_series": series, "promql_expr_test": [query] })
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let alerts: BTreeSet<String> = rules().iter().map(|rule| text(rule, "alert").to_owned()).collect();
    assert_eq!(alerts, FIRING.iter().map(|(alert, _, _)| (*alert).to_owned()).collect());
    let mut cases = vec![case("healthy", None, &[])];
    cases.extend(FIRING.iter().map(|(alert, series, values)| case(alert, Some((series, values)), &[alert])));
    // Each evaluation costs the same. The series change once, so one in five minutes finds what one in a minute finds.
    let file = json!({ "rule_files": [source::root().join(RULES)], "evaluation_interval": "5m", "tests": cases });
    let folder = TempDir::new().expect("a folder");
    // JSON is YAML.
    fs::write(folder.path().join("tests.yml"), file.to_string()).expect("written");
    for arguments in [["check", "rules"], ["test", "rules"]] {
        let mut command = Command::new("promtool");
        command.args(arguments).current_dir(folder.path());
        let path = if arguments[0] == "check" { source::root().join(RULES) } else { "tests.yml".into() };
        let output = command.arg(path).output().expect("tests/run installs it with Prometheus");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}
