//! The metrics that Prometheus names for every program: processor time, memory, open files, the start.

use std::fs;
use std::time::SystemTime;

use prometheus_client::metrics::MetricType;

use super::values::Single;
use crate::types::process;

/// `started`: when the process began.
pub(super) fn metrics(started: SystemTime) -> Vec<Single> {
    let started = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let single = |name, help, kind, read: fn() -> f64| Single { name, help, kind, read: Box::new(read) };
    let start = Single {
        name: "process_start_time_seconds",
        help: "When the process began, as a Unix time",
        kind: MetricType::Gauge,
        read: Box::new(move || started),
    };
    vec![
        single("process_cpu_seconds", "Processor time of all threads", MetricType::Counter, || {
            process::processor_time().as_secs_f64()
        }),
        single("process_resident_memory_bytes", "Memory that is not swapped out", MetricType::Gauge, || {
            process::resident_memory() as f64
        }),
        single("process_virtual_memory_bytes", "Address space", MetricType::Gauge, || process::address_space() as f64),
        single("process_open_fds", "Open file descriptors", MetricType::Gauge, open_files),
        single("process_max_fds", "Maximum open file descriptors", MetricType::Gauge, || {
            process::max_open_files().map_or(f64::INFINITY, |max| max as f64)
        }),
        start,
    ]
}

fn open_files() -> f64 {
    // One of them is that of the folder.
    fs::read_dir("/proc/self/fd").map_or(f64::NAN, |files| files.count().saturating_sub(1) as f64)
}
