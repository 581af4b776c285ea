//! The part of a record that every intent of one listing shares. It is kept once; a case is whole again with it.

use serde_json::{Value, json};

use super::Rules;
use crate::domain::question::{Answer, Question};

/// What is equal in all cases of a round: the rules, the controls, the query and who answered. `question` and `answer` are
/// those of one case, its subject first.
pub fn shared(rules: &Rules, question: &Question, answer: &Answer) -> Value {
    let mut controls = question.clone();
    let mut seen = answer.clone();
    controls.probes.drain(..1.min(controls.probes.len()));
    seen.seen.drain(..1.min(seen.seen.len()));
    for probe in &mut controls.probes {
        probe.recipient.clear();
    }
    json!({ "rules": rules, "question": controls, "answer": seen })
}

/// Takes the shared part out of a record. A record that differs in it (a name of another tenant is masked) stays whole: `Err`.
pub fn without_shared(record: Value, shared: &Value) -> Result<Value, Value> {
    let Some((own, taken)) = split(&record) else { return Err(record) };
    if taken == *shared { Ok(own) } else { Err(record) }
}

fn split(record: &Value) -> Option<(Value, Value)> {
    let mut own = record.clone();
    let case = own.get_mut("case")?.as_object_mut()?;
    let rules = case.remove("rules")?;
    let (mut question, mut answer) = (case.remove("question")?, case.remove("answer")?);
    let probes = first_apart(&mut question, "probes")?;
    let seen = first_apart(&mut answer, "seen")?;
    case.insert("question".to_owned(), json!({ "probes": [probes] }));
    case.insert("answer".to_owned(), json!({ "seen": [seen] }));
    Some((own, json!({ "rules": rules, "question": question, "answer": answer })))
}

/// Takes the first element out of a list.
fn first_apart(of: &mut Value, name: &str) -> Option<Value> {
    let list = of.get_mut(name)?.as_array_mut()?;
    (!list.is_empty()).then(|| list.remove(0))
}
