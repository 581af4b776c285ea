//! Code and database agree on what may become what.

use settled::domain::state::State;

use crate::support::db::Database;

#[tokio::test]
async fn code_and_database_agree_on_every_pair_of_states() {
    let database = Database::new().await;
    let mut legal = 0;
    for from in State::ALL {
        for to in State::ALL.into_iter().filter(|to| *to != from) {
            let in_database: bool = sqlx::query_scalar("select settled.legal_move($1, $2)")
                .bind(from.as_str())
                .bind(to.as_str())
                .fetch_one(&database.pool)
                .await
                .unwrap();
            assert_eq!(in_database, from.may_become(to), "{} to {}", from.as_str(), to.as_str());
            legal += usize::from(in_database);
        }
    }
    // Only a claim or a replay opens an attempt.
    let opens = State::ALL.into_iter().filter(|from| from.may_become(State::InFlight));
    assert_eq!(opens.collect::<Vec<_>>(), [State::Pending, State::Unknown]);
    assert!(legal > 30);
}
