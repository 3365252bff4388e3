//! The plans of a search of families.

use std::sync::Arc;

use super::operations::with_empty_tables;
use crate::store::postgres::rows::get;
use crate::store::postgres::search::{OTHERS, REST};
use crate::store::postgres::session::Param;
use crate::store::search::SearchState;

/// 20,000 sessions of 10,000 subjects. Every second one is revoked.
const FILL: &str = "insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation,
        root, rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry, revoked_at,
        revoked_reason)
    select lpad(n::text, 22, '0'), 'user-' || n / 2, '', '[]', '', '{}', '', sha256(''), 1, 1, n, 0, n, n,
        9000000000000, 9000000000000, case when n % 2 = 0 then n end, case when n % 2 = 0 then 'logout' end
    from generate_series(1, 20000) n";

/// Otherwise each page would sort all families, which takes seconds.
#[test]
fn a_page_of_a_search_reads_one_index_in_its_order() {
    with_empty_tables(Arc::default(), |session, _| async move {
        session.execute(FILL, &[]).await?;
        session.batch("analyze families").await?;
        for mode in ["force_custom_plan", "force_generic_plan"] {
            session.batch(&format!("set plan_cache_mode = {mode}")).await?;
            for (state, index) in [
                (SearchState::Live, "families_unrevoked"),
                (SearchState::Ended, "families_of_subject"),
                (SearchState::All, "families_of_subject"),
            ] {
                let none = None::<String>;
                let rest: [&dyn Param; 7] = [&5_i64, &51_i64, &none, &none, &"user-7", &i64::MAX, &"~"];
                let others: [&dyn Param; 6] = [&5_i64, &51_i64, &none, &none, &"", &"v"];
                for (range, params) in [(REST, &rest[..]), (OTHERS, &others[..])] {
                    for sql in range.statements(state) {
                        let explain: &'static str = Box::leak(format!("explain {sql}").into_boxed_str());
                        let rows = session.query(explain, params).await?;
                        let lines: Result<Vec<String>, _> = rows.iter().map(|row| get(row, "QUERY PLAN")).collect();
                        let plan = lines?.join("\n");
                        assert!(plan.contains(&format!("using {index} on families")), "{mode} {state:?}: {plan}");
                        assert!(!plan.contains("Sort") && !plan.contains("Seq Scan on families"), "{mode}: {plan}");
                    }
                }
            }
        }
        Ok(())
    });
}
