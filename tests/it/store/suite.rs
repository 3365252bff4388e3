//! What every store does, as functions over one that is empty. Each implementation runs all of them: see `embedded.rs`.

pub(crate) mod audit;
pub(crate) mod families;
pub(crate) mod log;
pub(crate) mod rotation;

/// Makes a test of each function of the suite. `$run` opens an empty store and drives the function with it.
macro_rules! run_the_suite {
    ($run:path) => {
        $crate::store::suite::run_the_suite!($run;
            audit: each_decision_is_recorded_once_and_in_order, what_is_delivered_is_forgotten_and_the_sequence_goes_on,
            what_failed_was_never_recorded;
            rotation: the_current_token_rotates, the_parent_gets_its_child_again_within_the_grace,
            a_lost_response_is_recovered_after_the_grace, a_reuse_is_refused_and_committed,
            laggards_conflict_within_the_grace_and_are_reuse_after_it, a_token_ahead_of_the_store_is_refused,
            forged_and_unknown_tokens_change_nothing, the_dead_do_not_rotate, one_token_refreshed_64_times_at_once_rotates_once;
            families: every_field_comes_back, a_login_beyond_the_limit_ends_the_least_recently_used,
            the_limit_counts_only_the_living, the_limit_counts_the_living_to_their_last_moment,
            the_newest_login_stays_whatever_the_limit_and_the_clock,
            an_id_is_taken_once, only_the_owner_and_admins_revoke, the_dead_are_not_revoked_again,
            an_expired_family_is_revoked_while_its_last_token_may_live, confirming_only_raises_and_only_what_exists,
            a_subject_sees_its_families_newest_first, signing_keys_change_as_was_decided, a_working_store_passes_its_check;
            log: the_log_has_no_gaps_and_starts_where_asked, a_family_is_not_revoked_without_asking_who,
            a_subjects_watermark_ends_its_families, a_watermark_is_never_lowered, a_watermark_over_everything_ends_all,
            another_issuers_subject_is_not_ours, a_watermark_over_our_issuer_ends_all,
            one_token_of_ours_is_remembered_as_long_as_its_family_may_live, a_login_right_after_a_watermark_lives,
            a_login_between_two_watermarks_of_one_second_is_dead,
            what_no_longer_matters_is_swept, sweeping_takes_no_more_than_asked, watermarks_outlive_what_they_void;
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
