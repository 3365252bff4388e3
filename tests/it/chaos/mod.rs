//! Gateways on one PostgreSQL while processes, networks and the database fail.
//!
//! Each case sends load, makes a fault, and gives the recorded history to the checkers. `controls` shows that each
//! checker finds the fault that it is there for. A seed decides on the order and the moments of all that happens; each
//! case prints it, and `BEARWARD_SEED` repeats it.
//!
//! | case | fault | test in `cases` |
//! |---|---|---|
//! | 1 | none | `replicas::no_revocation_is_missed_without_a_fault` |
//! | 2 | a gateway is killed | `replicas::a_killed_replica_loses_nothing` |
//! | 3 | a gateway is stopped | `replicas::a_stopped_replica_does_not_serve_revoked_tokens` |
//! | 4 | the same, for longer than `store.max_staleness` | `replicas::a_replica_that_stops_for_long_rejects_first` |
//! | 5 | no packets between a gateway and the database | `network::a_replica_without_its_database_heals_alone` |
//! | | the cable of a gateway is cut, in a network of its own | `network::a_replica_with_a_cut_cable_heals_alone` |
//! | 6 | responses of the database are lost | `network::lost_responses_of_the_database_are_resolved` |
//! | 7 | connections are reset all the time | `network::connections_that_are_reset_all_the_time_make_progress` |
//! | 8 | a slow network | `network::a_slow_network_delays_only_its_replica` |
//! | 9 | the database is killed | `database::a_killed_database_loses_nothing_that_was_acknowledged` |
//! | 10 | a synchronous standby takes over | `database::a_promoted_synchronous_standby_has_everything` |
//! | 11 | an asynchronous standby that lags takes over | `database::every_replica_finds_that_a_standby_lacks_revocations` |
//! | | the same, and it lacks as many revocations as a gateway remembers | `lost::many_lost_revocations_come_back` |
//! | 12 | clocks of gateways are wrong | `replicas::wrong_clocks_change_nothing` |
//! | 13 | the clock of the new primary is behind | `database::a_new_primary_with_a_late_clock_saves_no_session` |
//! | | the clock of a gateway is ahead for a second | `clocks::a_gateway_with_a_clock_that_was_ahead_ends_no_session` |
//! | | the database is slow while a gateway starts | `clocks::a_gateway_that_started_slowly_ends_no_session` |
//! | | the clock of the new primary is behind, and a gateway restarts | `clocks::a_late_clock_after_a_failover_ends_no_session` |
//! | | the clock of the database is ahead for a second | `clocks::a_database_with_a_clock_that_was_ahead_ends_no_session` |
//! | | the clock of the database is set back | `clocks::a_late_clock_prolongs_no_grace` |
//! | | a gateway is ahead at a login | `clocks::a_login_at_a_gateway_that_is_ahead_prolongs_no_grace` |
//! | | the clock of a gateway is set forward | `clocks::a_gateway_that_is_set_forward_finds_a_used_token_at_once` |
//! | | a gateway is behind at a revocation | `clocks::a_revocation_at_a_gateway_that_is_behind_covers_all_earlier_tokens` |
//! | | a gateway is ahead at a revocation | `clocks::a_revocation_at_a_gateway_that_is_ahead_rejects_no_later_login` |
//! | | the same, and what it revokes | `machine_clocks::a_revocation_holds_at_the_gateway_that_made_it_while_it_was_ahead` |
//! | | another gateway is ahead at a revocation | `machine_clocks::a_revocation_holds_at_another_gateway_that_was_ahead` |
//! | | a gateway starts while its clock is ahead | `machine_clocks::a_revocation_holds_at_a_gateway_that_started_ahead` |
//! | | a gateway is ahead at a logout | `machine_clocks::a_logout_holds_at_a_gateway_that_was_two_hours_ahead` |
//! | | with SQLite: the clock was ahead before a restart | `machine_clocks::sqlite::a_clock_that_was_ahead_for_a_while_leaves_the_grace_period_after_a_restart` |
//! | | with SQLite: the clock is set forward | `machine_clocks::sqlite::a_clock_that_is_set_forward_ends_no_grace_period` |
//! | | all gateways are ahead during a sweep | `clocks::gateways_that_are_ahead_for_a_moment_sweep_no_revocation_in_force` |
//! | | the database is ahead while a gateway starts | `database_clocks::a_gateway_that_starts_sweeps_nothing_while_the_database_is_ahead` |
//! | | a gateway was killed while the database was ahead | `database_clocks::no_gateway_waits_for_a_lease_that_ends_later_than_any_can` |
//! | | the same, with `store.strict` | `database_clocks::a_strict_revocation_waits_for_no_gateway_that_was_killed_while_the_database_was_ahead` |
//! | | the database is behind at a revocation | `database_clocks::a_watermark_covers_what_came_before_it_while_the_database_is_behind` |
//! | | a new primary lacks revocations, and is ahead | `database_clocks::what_a_standby_lacks_comes_back_also_if_its_clock_is_ahead` |
//! | | a gateway is stopped for longer than `refresh_grace` | `pauses::a_stopped_gateway_ends_no_session` |
//! | | the same, and the token of a thief comes after it | `pauses::a_stopped_gateway_finds_a_theft_soon_after` |
//! | | the same, during a revocation | `pauses::a_late_revocation_ends_no_later_session` |
//! | 14 | all gateways rotate their key at once | `sharing::keys_that_all_replicas_rotate_at_once_are_valid_at_once` |
//! | 15 | the tables change under load | `sharing::a_migration_under_load_delays_for_less_than_a_second` |
//! | 16 | a transaction stays open elsewhere | `database::an_open_transaction_elsewhere_delays_nothing` |
//! | 17 | no notifications | `network::without_notifications_polling_is_enough` |
//! | | a pooler | `network::a_pooler_between_changes_nothing` |
//! | 18 | the gateway that delivers events is killed meanwhile | `sharing::a_killed_deliverer_loses_no_event` |
//! | 19 | what no gateway may start with | `sharing::a_gateway_that_would_be_unsafe_does_not_start` |
//! | 20 | the disk of the database is full | `database::a_full_disk_leaves_nothing_half_done` |
//! | | the same, and what `/readyz` says | `readiness::a_full_disk_of_the_database_makes_gateways_unready_until_there_is_room` |
//! | | the database is stopped | `database::a_stopped_database_is_survived` |
//! | | Patroni: a switchover | `patroni::a_switchover_loses_nothing` |
//! | | Patroni: the primary is killed | `patroni::a_killed_primary_loses_nothing` |
//! | | Patroni: the primary is killed, with its agent and etcd | `patroni::a_dead_machine_loses_nothing` |
//! | | Patroni: the agent of the primary is killed, so that there are two | `patroni::a_killed_agent_loses_nothing` |
//! | | Patroni: the leader of etcd is killed | `patroni::a_killed_leader_of_etcd_loses_nothing` |
//! | | Patroni: the primary is cut off, and gateways reach it | `patroni::a_partition_with_a_reachable_primary_loses_nothing` |
//! | | Patroni: the primary is cut off from all | `patroni::a_partition_loses_nothing` |
//! | | another session locks the tables | `database::locked_tables_stop_no_known_token` |
//! | | `store.strict`, and a gateway is cut off | `replicas::a_strict_revocation_holds_when_a_replica_is_cut_off` |
//! | | `store.strict`, and a gateway is stopped | `replicas::a_strict_revocation_holds_when_a_replica_is_stopped` |
//!
//! `tests/run` runs cases 1, 3, 6, 9 and 11, the one after it with fewer revocations, and those of clocks and pauses
//! without a failover; `tests/chaos` runs all of them, and those of Patroni on each version of PostgreSQL that it has.
//! Case 15 has the tables of the next version, but only one program: `store::postgres::schema::next` runs the whole
//! suite of the store on them.

mod cases;
mod checkers;
mod cluster;
mod collector;
mod controls;
mod fault_proxy;
mod load;
mod network;
mod patroni;
mod races;
mod revocations;
mod story;
mod survive;
mod target;

use crate::support::source;

/// So that a reader finds each case in the table above.
#[test]
fn the_table_names_every_case() {
    let table = include_str!("mod.rs");
    for file in std::fs::read_dir(source::root().join("tests/it/chaos/cases")).expect("the cases") {
        let code = source::read(file.expect("a file").path());
        let lines: Vec<&str> = code.lines().map(str::trim_start).collect();
        let attributes = ["#[test]", "#[tokio::test]"];
        for at in (0..lines.len()).filter(|at| attributes.contains(&lines[*at])) {
            let head = lines[at..].iter().find_map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
            let name = head.and_then(|head| head.split('(').next()).expect("a function");
            assert!(table.contains(&format!("::{name}`")), "{name}");
        }
    }
}
