//! Figures of a process and of the machine, from proc(5).

use std::time::{Duration, Instant};
use std::{fs, io};

use crate::Outcome;

/// Resident memory of a process in MiB (proc(5): VmRSS, in kB).
pub fn resident(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().ok_or("no VmRSS")?.parse::<u64>()? / 1024)
}

/// User and system time of all threads of a process (proc(5): utime and stime, in ticks of 10 ms).
pub fn cpu_time(pid: u32) -> Outcome<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').ok_or("no stat")?.1;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(10 * ticks))
}

/// Total time of all processors (proc(5): the first line of stat, in ticks of 10 ms).
pub struct Machine {
    pub at: Instant,
    all: u64,
    /// Time in which the host ran another virtual machine.
    pub stolen: u64,
}

impl Machine {
    pub fn now() -> io::Result<Machine> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal. User and nice include guest time.
        let times: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|time| time.parse().ok()).collect();
        Ok(Machine { at: Instant::now(), all: times.iter().sum(), stolen: times.get(7).copied().unwrap_or_default() })
    }

    /// Stolen time since `before`, in percent of all time.
    pub fn stolen_since(&self, before: &Machine) -> f64 {
        100.0 * (self.stolen - before.stolen) as f64 / (self.all - before.all).max(1) as f64
    }
}
