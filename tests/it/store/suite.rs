//! The contract of a store, as functions that take an empty store. Each implementation runs all of them: see
//! `embedded`.

pub(crate) mod acme;
pub(crate) mod api_keys;
pub(crate) mod audit;
pub(crate) mod clients;
pub(crate) mod due_logins;
pub(crate) mod endings;
pub(crate) mod families;
pub(crate) mod grants;
pub(crate) mod log;
pub(crate) mod marks;
pub(crate) mod origins;
pub(crate) mod provider_logins;
pub(crate) mod provider_logouts;
pub(crate) mod records;
pub(crate) mod rotation;
pub(crate) mod search;

/// Makes a test of each function of the suite. `$run` opens an empty store and runs the function with it; `$reopen`
/// runs a function that opens and closes the store itself.
macro_rules! run_the_suite {
    ($run:path, $reopen:path) => {
        $crate::store::suite::run_the_suite!($reopen;
            records: everything_is_kept_over_a_restart, an_operation_is_completed_even_if_its_caller_is_gone,
            a_revocation_is_enforced_before_its_caller_is_answered,
            a_shorter_access_lifetime_keeps_older_tokens_revocable,
            a_shorter_family_lifetime_keeps_older_tokens_revocable,
            a_longer_lifetime_keeps_earlier_revocations, events_beyond_the_limit_are_lost_and_counted,
            a_watermark_survives_a_change_of_the_issuers_name, marks_are_kept_over_a_restart,
            an_interrupted_refresh_is_found_after_a_restart;
        );
        $crate::store::suite::run_the_suite!($run;
            audit: each_decision_is_recorded_once_and_in_order,
            delivered_events_are_removed_and_the_sequence_goes_on, a_failed_operation_is_not_recorded,
            the_session_of_a_client_is_recorded_once_and_its_first_one_for_a_user;
            rotation: the_current_token_rotates, the_parent_gets_its_child_again_within_the_grace,
            a_lost_response_is_recovered_after_the_grace, a_reuse_is_rejected_and_committed,
            old_tokens_conflict_within_the_grace_and_are_reuse_after_it,
            a_token_ahead_of_the_store_is_rejected, forged_and_unknown_tokens_change_nothing,
            revoked_and_expired_families_do_not_rotate, one_token_refreshed_64_times_at_once_rotates_once;
            families: every_field_comes_back, a_login_beyond_the_limit_ends_the_least_recently_used,
            the_limit_counts_only_live_families, a_family_counts_until_its_last_moment,
            the_limit_never_ends_the_newest_login, an_id_is_taken_once, only_the_owner_and_admins_revoke,
            revoked_families_are_not_revoked_again,
            an_expired_family_is_revoked_while_its_last_token_may_live,
            confirming_only_raises_and_only_what_exists, a_subject_sees_its_families_newest_first,
            signing_keys_change_as_decided, a_working_store_passes_its_check;
            grants: a_late_refresh_is_counted_and_committed, late_refreshes_at_once_are_counted_each,
            a_spent_token_from_elsewhere_ends_a_superseded_grant, a_new_grant_ends_what_it_supersedes,
            superseded_grants_do_not_count_for_the_limit, a_client_has_a_limit_of_its_own, a_void_grant_ends_nothing;
            acme: an_entry_changes_one_version_at_a_time;
            api_keys: a_key_comes_back_as_it_was_written, keys_are_listed_without_logins_page_by_page,
            keys_do_not_count_for_the_limit_of_sessions, access_tokens_alone_do_not_count_for_the_limit,
            keys_hide_no_session, the_last_use_of_a_key_is_only_raised,
            a_key_is_never_refreshed, a_revoked_key_is_in_the_log_and_audited,
            a_watermark_voids_keys_for_as_long_as_they_live;
            clients: a_clients_watermark_ends_its_families, a_watermark_can_be_of_a_client_and_a_user,
            a_clients_watermark_is_never_lowered, the_log_has_the_client,
            a_grant_that_is_older_than_the_watermark_is_void, a_clients_watermark_of_now_ends_families_dated_later,
            a_clients_watermark_outlives_what_it_revokes, clients_with_live_sessions_are_counted,
            the_limit_of_sessions_measures_each_one_by_its_own_client;
            endings: what_was_ended_is_listed_newest_first, a_list_of_endings_has_pages,
            what_a_provider_ended_can_be_found, the_list_outlives_the_log;
            search: pages_have_each_session_once_in_order, a_search_finds_one_subject_or_a_prefix,
            a_search_finds_the_wanted_state, a_search_finds_a_client_and_a_resource,
            ended_sessions_do_not_slow_a_page_down;
            origins: a_revoked_session_ends_exactly_its_families,
            a_watermark_elsewhere_ends_what_is_dated_before_it,
            a_login_is_void_if_its_session_was_revoked_before,
            a_session_that_expired_long_ago_is_not_ended, a_thousand_families_of_one_session_end_together;
            provider_logins: a_login_comes_back_as_it_was_written, a_login_ends_the_session_that_it_replaces,
            a_void_login_replaces_nothing, a_lease_is_exclusive_and_ends, one_of_many_gets_the_lease,
            an_interrupted_refresh_is_found,
            refreshed_tokens_are_saved_with_their_claims, tokens_alone_change_nothing_else,
            a_late_holder_keeps_its_tokens_unless_there_are_newer;
            provider_logouts: tokens_of_an_ended_session_are_only_told, only_tokens_that_were_told_are_forgotten,
            each_end_of_a_session_is_found,
            an_unclaimed_login_ends_after_five_minutes, a_session_that_lives_on_is_not_told,
            a_first_use_after_the_end_delays_nothing,
            at_most_the_wanted_number_is_found, the_logins_of_one_provider_are_found_alone,
            a_sweep_leaves_logins_that_are_still_to_be_told,
            a_login_is_swept_after_a_day_of_attempts, only_attempts_count_for_the_day_of_a_login,
            a_login_that_no_gateway_tries_is_swept_after_a_day;
            due_logins: logins_of_a_session_or_a_user_are_made_due,
            a_login_that_becomes_due_during_a_refresh_stays_due;
            marks: a_mark_is_used_once, only_the_first_use_revokes, a_mark_that_cannot_revoke_is_not_used,
            one_of_many_uses_at_once_is_the_first, a_mark_is_swept_when_it_has_expired;
            log: the_log_has_no_gaps_and_starts_at_the_given_entry, a_family_is_only_revoked_with_an_actor,
            a_subjects_watermark_ends_its_families, a_watermark_is_never_lowered,
            a_watermark_over_everything_ends_all, a_watermark_of_another_issuer_has_no_effect,
            a_watermark_over_our_issuer_ends_all, a_revoked_token_is_kept_as_long_as_its_family,
            a_login_right_after_a_watermark_is_valid,
            a_login_between_two_watermarks_of_one_second_is_revoked, a_refresh_does_not_escape_a_watermark,
            a_watermark_of_now_ends_families_dated_later, the_sweep_removes_expired_entries,
            the_sweep_removes_at_most_the_given_count, watermarks_outlive_what_they_revoke,
            what_waits_for_the_sweep_is_counted;
        );
    };
    ($run:path; $($module:ident: $($name:ident),+;)+) => {
        $(mod $module { $(
            #[test]
            fn $name() {
                $run(|store| Box::pin(crate::store::suite::$module::$name(store)));
            }
        )+ })+
    };
}
pub(crate) use run_the_suite;
