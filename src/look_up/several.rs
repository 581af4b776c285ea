//! Several probes, one downstream: one listing for several questions, or one request for each probe in an order that lets a
//! control stand on both sides of the question. Pure; used by every adapter.

use crate::domain::question::{Answer, Question, Role, Seen};

/// All probes of several questions as one, for an adapter that lists. The latest `now` ends the window.
pub(super) fn whole(questions: &[Question]) -> Option<Question> {
    let now = questions.iter().map(|question| question.now).max()?;
    Some(Question { probes: questions.iter().flat_map(|question| question.probes.iter().cloned()).collect(), now })
}

/// The answer to [`whole`], cut into an answer for each question. All of them rest on the same reading, and say so.
pub(super) fn apart(answer: &Answer, questions: &[Question]) -> Vec<Answer> {
    let mut seen = answer.seen.iter();
    questions
        .iter()
        .map(|question| Answer { seen: seen.by_ref().take(question.probes.len()).cloned().collect(), ..answer.clone() })
        .collect()
}

/// Positions of the probes in the order of asking: control, question, control.
pub(super) fn order(question: &Question) -> Vec<usize> {
    let mut order: Vec<usize> = (0..question.probes.len()).collect();
    order.sort_by_key(|at| match question.probes[*at].role {
        Role::Elder => 0,
        Role::Subject => 1,
        Role::Younger => 2,
        Role::Impossible => 3,
    });
    order
}

/// The elder witness that must be asked for once more, after the subject: where there is no younger one, only that tells a
/// path that broke in between.
pub(super) fn elder_again(question: &Question, seen: &[Seen]) -> Option<usize> {
    let has = |role: Role| question.probes.iter().position(|probe| probe.role == role);
    match (has(Role::Elder), has(Role::Younger)) {
        (Some(elder), None) if matches!(seen.get(elder), Some(Seen::Hits { .. })) => Some(elder),
        (Some(_), Some(_) | None) | (None, Some(_) | None) => None,
    }
}

/// What the elder witness comes to when it was asked for again.
pub(super) fn after_the_subject(before: Seen, again: &Seen) -> Seen {
    match again {
        Seen::Hits { .. } => before,
        Seen::Nothing | Seen::CannotTell { .. } => {
            Seen::CannotTell { why: "visible before the question, not after it".to_owned() }
        }
    }
}
