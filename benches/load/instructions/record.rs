//! The table in `benches/README.md`, which a change of the costs changes in the same commit.

use std::collections::HashMap;
use std::fs;

use super::Row;
use crate::Outcome;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/README.md");
const HEAD: &str = "| scenario | instructions | allocations | system calls |";
/// Ratio of the instructions to those in the table. Two runs of one build differ by less than 1 %.
const GROWTH: f64 = 1.02;
/// Allocations and system calls of a request that are more than those in the table, if that is more than [`GROWTH`]: a
/// request with a proof takes 65.1 to 65.7 allocations in runs of one build.
const MORE: f64 = 0.5;
/// From this number on, the system calls depend on when the client sends and reads: those of handshakes and of large
/// bodies.
const TIMED: f64 = 10.0;
/// What they may grow by: 17.6 to 20.7 in runs of one build.
const TIMED_GROWTH: f64 = 1.2;

pub fn print(rows: &[Row]) {
    println!("{HEAD}\n|---|---:|---:|---:|");
    for Row { scenario, instructions, allocations, system_calls } in rows {
        println!("| {scenario} | {instructions:.0} | {allocations:.1} | {system_calls:.1} |");
    }
}

/// What a known token may cost, as a ratio to the same request without a check.
const KNOWN_TOKEN_GOAL: f64 = 1.04;

/// Prints how much a known token costs, as a ratio to `plain`.
pub fn print_known_tokens(rows: &[Row]) {
    let of = |name: &str| rows.iter().find(|row| row.scenario == name).map(|row| row.instructions);
    for name in ["es256", "hs256"] {
        if let (Some(checked), Some(plain)) = (of(name), of("plain")) {
            println!("a known token, {name}: {:.3} x plain (goal {KNOWN_TOKEN_GOAL})", checked / plain);
        }
    }
}

/// Prints how often each function allocates in a request, if that is at least once in 20.
pub fn print_callers(scenario: &str, callers: HashMap<String, f64>, requests: usize) {
    let mut callers: Vec<_> = callers.into_iter().map(|(name, count)| (count / requests as f64, name)).collect();
    callers.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    println!("allocations of {scenario}:");
    for (count, name) in callers.iter().take_while(|(count, _)| *count >= 0.05) {
        println!("{count:8.2}  {name}");
    }
}

/// The rows that cost more than the same row of the table.
pub fn grown(rows: &[Row]) -> Outcome<Vec<&'static str>> {
    let recorded = recorded()?;
    Ok(rows.iter().filter(|row| growth(row, &recorded).is_some()).map(|row| row.scenario).collect())
}

/// Fails if a row costs more than the same row of the table.
pub fn compare(rows: &[Row]) -> Outcome<()> {
    let recorded = recorded()?;
    let grown: Vec<String> = rows.iter().filter_map(|row| growth(row, &recorded)).collect();
    if grown.is_empty() {
        return Ok(());
    }
    let advice = "If the change is worth it, put the new table into benches/README.md and give the reason there.";
    Err(format!("a request costs more than in benches/README.md:\n{}\n{advice}", grown.join("\n")).into())
}

/// The table.
fn recorded() -> Outcome<String> {
    let text = fs::read_to_string(FILE)?;
    let (_, table) = text.split_once(HEAD).ok_or("benches/README.md has no table of instructions")?;
    Ok(table.to_owned())
}

/// What has grown, or what the table lacks.
fn growth(row: &Row, recorded: &str) -> Option<String> {
    let name = row.scenario;
    let Some([instructions, allocations, system_calls]) = find(name, recorded) else {
        return Some(format!("{name}: not in the table"));
    };
    let is_grown = row.instructions > instructions * GROWTH
        || row.allocations > (allocations * GROWTH).max(allocations + MORE)
        || row.system_calls > most_system_calls(system_calls);
    is_grown.then(|| {
        format!(
            "{name}: {:.0} instructions ({instructions} in the table), {:.1} allocations ({allocations}), \
             {:.1} system calls ({system_calls})",
            row.instructions, row.allocations, row.system_calls
        )
    })
}

fn most_system_calls(recorded: f64) -> f64 {
    if recorded > TIMED { recorded * TIMED_GROWTH } else { (recorded * GROWTH).max(recorded + MORE) }
}

fn find(scenario: &str, recorded: &str) -> Option<[f64; 3]> {
    let line = recorded.lines().find_map(|line| line.strip_prefix(&format!("| {scenario} | ")))?;
    let cells: Vec<f64> = line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
    cells.try_into().ok()
}
