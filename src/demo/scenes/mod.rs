//! The scenes, in the order in which they are played.

mod clean;
mod decisions;
mod doubt;

use std::time::Duration;

use super::{house::House, telling::Telling};
use crate::domain::gate::BoxFuture;

/// How long a scene waits for what it promises.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays one scene; an error is a promise that was not kept.
pub type Play = for<'a> fn(&'a House, &'a Telling) -> BoxFuture<'a, anyhow::Result<()>>;

/// One scene.
pub struct Scene {
    /// A few words.
    pub title: &'static str,
    /// What happens, in one sentence.
    pub story: &'static str,
    /// The scene.
    pub play: Play,
}

/// All of them.
pub const SCENES: [Scene; 12] = [
    Scene {
        title: "An invoice, in the shop's own transaction",
        story: "The shop books an invoice and asks for its mail by SQL; both are committed together.",
        play: |house, tell| Box::pin(clean::by_sql(house, tell)),
    },
    Scene {
        title: "An order over HTTP",
        story: "An agent's tool asks over the API and waits until the receiver has it.",
        play: |house, tell| Box::pin(clean::by_http(house, tell)),
    },
    Scene {
        title: "A text message from the command line",
        story: "Somebody types it.",
        play: |house, tell| Box::pin(clean::by_command(house, tell)),
    },
    Scene {
        title: "A transaction that is rolled back",
        story: "The booking fails after the mail was asked for; no mail is ever sent.",
        play: |house, tell| Box::pin(clean::rolled_back(house, tell)),
    },
    Scene {
        title: "The same call twenty times at once",
        story: "A handler is run again and again by its queue, by SQL and by HTTP; there is one row and one call.",
        play: |house, tell| Box::pin(clean::at_once(house, tell)),
    },
    Scene {
        title: "The reply is lost after the final dot",
        story: "The mail server has the mail, its answer is lost; nobody sends again, the audit mailbox is asked.",
        play: |house, tell| Box::pin(doubt::lost_after_dot(house, tell)),
    },
    Scene {
        title: "The connection is reset, and nothing had arrived",
        story: "The receiver is asked, with witnesses before and after; absence is proven, then it is sent again.",
        play: |house, tell| Box::pin(doubt::proven_absent(house, tell)),
    },
    Scene {
        title: "The daemon is killed in mid-send",
        story: "SIGKILL after the bytes and before the answer; its successor finds the open attempt and asks.",
        play: |house, tell| Box::pin(doubt::killed(house, tell)),
    },
    Scene {
        title: "The server's secret is rotated while something is in doubt",
        story: "Keys are pinned to their intents: what was sent under the old secret is found, and repeats stay repeats.",
        play: |house, tell| Box::pin(doubt::rotated(house, tell)),
    },
    Scene {
        title: "The agent decides again",
        story: "In a new run it wants to send the first invoice once more; it is told that this has happened.",
        play: |house, tell| Box::pin(decisions::again(house, tell)),
    },
    Scene {
        title: "A corrected invoice under the old number",
        story: "Same reference, other amount: refused as a conflict, by name of what differs; nothing is sent.",
        play: |house, tell| Box::pin(decisions::corrected(house, tell)),
    },
    Scene {
        title: "A partner that cannot be asked",
        story: "The reply is lost and there is nobody to ask; it waits for you.",
        play: |house, tell| Box::pin(decisions::for_you(house, tell)),
    },
];
