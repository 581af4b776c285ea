//! The ledger that these tests stand on.

use settled::domain::state::State;

use crate::support::ledger::{Ledger, lost, sent};

#[tokio::test]
async fn a_lost_reply_goes_to_a_person_where_nobody_can_be_asked() {
    let ledger = Ledger::new().await;
    let sent_one = ledger.enqueue("INV-1").await;
    assert_eq!(ledger.attempt(sent_one, sent("p-1")).await, State::Sent);
    let lost_one = ledger.enqueue("INV-2").await;
    assert_eq!(ledger.attempt(lost_one, lost()).await, State::Unknown);
    assert_eq!(ledger.fold_state(lost_one).await, State::Unknown);
    assert_eq!(ledger.open_escalations(lost_one).await, ["no_look_up"]);
}
