//! A doubt with everything around it: INV-2 between INV-1, which went out before it, and INV-3, which went out after it.

use std::sync::Arc;

use settled::demo::fakes::{
    faults::{Fault, Stage},
    webhook::Webhook,
};
use uuid::Uuid;

use crate::support::{fragments::webhook, world::World};

pub const PAYLOAD: &str = r#"{"type":"invoice.created"}"#;

/// See the module. The subject is `id`; everything that could prove it absent is there.
pub struct Doubt {
    pub receiver: Arc<Webhook>,
    pub world: World,
    pub id: Uuid,
    sends: u64,
}

/// How a subject gets into doubt.
pub struct Setting {
    /// The destination's entry, from its receiver.
    pub destination: Box<dyn Fn(&Webhook) -> String>,
    /// What happens to the subject.
    pub fault: Fault,
    /// Reference of the subject.
    pub reference: &'static str,
    /// Whether something goes out before the subject.
    pub elder: bool,
    /// Whether something goes out after its closure.
    pub younger: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            destination: Box::new(|receiver| webhook("erp", receiver, "", "")),
            fault: Fault::ResetBeforeActing,
            reference: "INV-2",
            elder: true,
            younger: true,
        }
    }
}

impl Doubt {
    /// The subject never arrived, and all controls are there.
    pub async fn bracketed() -> Self {
        Self::new(Setting::default()).await
    }

    pub async fn new(setting: Setting) -> Self {
        Self::prepared(setting, |_| {}).await
    }

    /// `prepare` may do something to the receiver before anything is sent.
    pub async fn prepared(setting: Setting, prepare: impl FnOnce(&Webhook)) -> Self {
        Self::made(setting, prepare, "unknown").await
    }

    /// The same where the policy calls the doubt by another state.
    pub async fn ended(setting: Setting, state: &str) -> Self {
        Self::made(setting, |_| {}, state).await
    }

    async fn made(setting: Setting, prepare: impl FnOnce(&Webhook), state: &str) -> Self {
        let receiver = Arc::new(Webhook::start().await.unwrap());
        prepare(&receiver);
        let mut world = World::new(&[(setting.destination)(&receiver)]).await;
        // Some fakes compare references letter by letter.
        let lower = setting.reference.starts_with("inv");
        let named = |name: &str| if lower { name.to_ascii_lowercase() } else { name.to_owned() };
        if setting.elder {
            world.enqueue("erp", &named("INV-1"), PAYLOAD).await;
            world.dispatch().await;
        }
        world.turn(5);
        receiver.faults().for_reference(setting.reference, setting.fault);
        let id = world.enqueue("erp", setting.reference, PAYLOAD).await;
        world.dispatch().await;
        assert_eq!(world.state(id).await, state);
        // The lease ends; what goes out now is younger.
        world.turn(30);
        if setting.younger {
            world.enqueue("erp", &named("INV-3"), PAYLOAD).await;
            world.dispatch().await;
        }
        // The lag goes by.
        world.turn(30);
        let sends = receiver.faults().count(Stage::Act);
        Self { receiver, world, id, sends }
    }

    /// Asks so many times, a quarter of an hour apart, with a dispatcher that would send at once what may be sent.
    pub async fn ask(&mut self, times: usize) {
        for _ in 0..times {
            self.world.ask().await;
            self.world.dispatch().await;
            self.world.turn(900);
        }
    }

    /// However often it is asked about, it is never absent, for a reason that has `words` in it, and nothing is sent.
    pub async fn never_absent(&mut self, words: &str) {
        self.ask(5).await;
        let verdicts = self.world.verdicts(self.id).await;
        assert!(verdicts.len() >= 4, "{verdicts:#?}");
        assert!(verdicts.iter().all(|verdict| verdict.starts_with("inconclusive")), "{verdicts:#?}");
        assert!(verdicts.iter().any(|verdict| verdict.contains(words)), "{verdicts:#?}");
        assert_eq!(self.world.state(self.id).await, "unknown");
        self.nothing_was_sent();
    }

    /// No request has gone out since the doubt began.
    pub fn nothing_was_sent(&self) {
        assert_eq!(self.receiver.faults().count(Stage::Act), self.sends, "a second send");
    }

    /// It was proven absent and sent again, once.
    pub async fn sent_again(&mut self, reference: &str) {
        self.world.ask().await;
        self.world.turn(6);
        self.world.ask().await;
        assert_eq!(self.world.state(self.id).await, "pending", "{:#?}", self.world.verdicts(self.id).await);
        self.world.dispatch().await;
        assert_eq!(self.world.state(self.id).await, "sent");
        assert_eq!(self.receiver.effects().count_by_reference(reference), 1);
    }
}
