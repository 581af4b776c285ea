//! The account: what the ledger says, compared with what the downstreams have.

use std::{collections::BTreeSet, fmt};

use settled::demo::fakes::ledger_of_effects::Effect;

use crate::house::{CHANNELS, House};

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    destination: String,
    state: String,
    key: Option<String>,
    reference: String,
    with_a_person: bool,
}

/// Destination and reference of a call that was accepted.
pub type Accepted = (String, String);

/// What became of all intents.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Count {
    /// Rows of the ledger.
    pub intents: usize,
    /// Called sent.
    pub sent: usize,
    /// Not settled, with an open escalation.
    pub with_a_person: usize,
    /// Called sent without an effect, ended without one, or stuck where nobody looks.
    pub lost: usize,
    /// Effects beyond the first of one intent, and effects that no intent explains.
    pub doubled: usize,
    /// What is wrong, in words.
    pub wrong: Vec<String>,
}

impl Count {
    /// Counts now, and looks for what callers were told is accepted.
    pub async fn of_all(house: &House, accepted: &[Accepted]) -> Self {
        let mut count = Self::of(house).await;
        let there: Vec<Accepted> = sqlx::query_as("select destination, reference from settled.intents")
            .fetch_all(&house.db.pool)
            .await
            .unwrap();
        let there: BTreeSet<Accepted> = there.into_iter().map(|(to, name)| (to, name.to_ascii_lowercase())).collect();
        for (destination, reference) in accepted {
            if !there.contains(&(destination.clone(), reference.to_ascii_lowercase())) {
                count.lost += 1;
                count.wrong.push(format!("{reference} to {destination} was accepted and is not there"));
            }
        }
        count
    }

    /// Counts now.
    pub async fn of(house: &House) -> Self {
        let rows: Vec<Row> = sqlx::query_as(
            "select i.id, i.destination, i.state, i.key, i.reference,
                    exists (select from settled.escalations e where e.intent_id = i.id and e.closed_at is null) as with_a_person
               from settled.intents i order by i.id",
        )
        .fetch_all(&house.db.pool)
        .await
        .unwrap();
        let mut count = Self { intents: rows.len(), ..Self::default() };
        let mut odd = Vec::new();
        for destination in CHANNELS {
            let effects = house.effects(destination).all();
            let own: Vec<&Row> = rows.iter().filter(|row| row.destination == destination).collect();
            for row in &own {
                let before = count.wrong.len();
                count.add(row, &effects);
                if count.wrong.len() > before {
                    odd.push(row.id);
                }
            }
            for stranger in effects.iter().filter(|effect| !own.iter().any(|row| explains(row, effect))) {
                count.doubled += 1;
                count.wrong.push(format!("no intent explains {stranger:?}"));
            }
        }
        for id in odd.iter().take(3) {
            count.wrong.extend(story(house, *id).await);
        }
        count
    }

    fn add(&mut self, row: &Row, effects: &[Effect]) {
        let seen = effects.iter().filter(|effect| explains(row, effect)).count();
        let Row { destination, state, reference, .. } = row;
        let said = format!("{reference} to {destination} is {state} with {seen} effects");
        if seen > 1 {
            self.doubled += seen - 1;
            self.wrong.push(said.clone());
        }
        match (state.as_str(), row.with_a_person) {
            ("sent", _) => {
                self.sent += 1;
                if seen == 0 {
                    self.lost += 1;
                    self.wrong.push(said);
                }
            }
            ("held" | "pending" | "unknown", true) => self.with_a_person += 1,
            _ => {
                self.lost += 1;
                self.wrong.push(said);
            }
        }
    }

    /// Nothing lost, nothing doubled.
    pub fn assert_clean(&self) {
        assert_eq!((self.lost, self.doubled), (0, 0), "{self}\n{:#?}", self.wrong);
        assert_eq!(self.sent + self.with_a_person, self.intents, "{self}");
    }
}

/// What the ledger knows about an intent that came out wrong.
async fn story(house: &House, id: uuid::Uuid) -> Vec<String> {
    let sql = "select concat_ws(' ', at, kind, attempt, actor, left(data::text, 600)) from settled.journal
                where intent_id = $1 order by id";
    let journal: Vec<String> = sqlx::query_scalar(sql).bind(id).fetch_all(&house.db.pool).await.unwrap();
    let sql = "select row_to_json(a)::text from settled.attempts a where intent_id = $1 order by number";
    let attempts: Vec<String> = sqlx::query_scalar(sql).bind(id).fetch_all(&house.db.pool).await.unwrap();
    [vec![format!("--- {id}")], journal, attempts].concat()
}

/// By key, by reference where the downstream keeps one, or by the reference in the text: a ledger that lost history may find an
/// effect whose key it has not written down.
fn explains(row: &Row, effect: &Effect) -> bool {
    let same = |text: &str| text.eq_ignore_ascii_case(&row.reference);
    let key = row.key.as_deref().is_some_and(|key| effect.key.as_deref().is_some_and(|k| k.eq_ignore_ascii_case(key)));
    key || same(&effect.reference) || effect.excerpt.split_whitespace().any(same)
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.intents += other.intents;
        self.sent += other.sent;
        self.with_a_person += other.with_a_person;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { intents, sent, with_a_person, lost, doubled, .. } = self;
        write!(f, "intents={intents} sent={sent} with_a_person={with_a_person} lost={lost} doubled={doubled}")
    }
}

/// True when every intent is settled or waits for a person.
pub const AT_REST: &str = "select not exists (
    select from settled.intents i
     where i.state not in ('sent', 'failed', 'cancelled', 'abandoned')
       and (i.state = 'in_flight'
            or not exists (select from settled.escalations e where e.intent_id = i.id and e.closed_at is null)))";
