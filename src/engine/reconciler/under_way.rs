//! Questions under way beside the loop that put them: a downstream that answers late, or never, must not hold up what is asked
//! of the others.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::task::{self, JoinError, JoinSet};
use uuid::Uuid;

use crate::engine::dispatcher::Sending;

/// How long a question may take before another daemon may ask it. The reaper frees those of dead workers earlier.
pub(in crate::engine) const LEASE: Duration = Duration::from_secs(120);

/// How long a step waits for its questions. Slower ones go on beside the next steps.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks a downstream for as long as the lease lasts, another daemon may ask afterwards, and while the process does not stop.
/// `None`: cut off. Only the asking is: a task that is cut off in a BEGIN spoils the connection for whoever gets it next.
pub(in crate::engine) async fn while_leased<T>(
    sending: &Sending,
    name: &str,
    asking: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        answer = tokio::time::timeout(LEASE, asking) => answer
            .inspect_err(|_elapsed| tracing::warn!(destination = %name, "a question took longer than its lease"))
            .ok(),
        () = sending.stopping.cancelled() => None,
    }
}

/// The questions of one loop.
#[derive(Default)]
pub(in crate::engine) struct UnderWay {
    tasks: JoinSet<Vec<Uuid>>,
    about: HashMap<task::Id, (String, Vec<Uuid>)>,
    /// Leased by us, and nothing came of it.
    unconcluded: Vec<Uuid>,
}

impl UnderWay {
    /// How many tasks ask this destination.
    pub fn of(&self, name: &str) -> i64 {
        i64::try_from(self.about.values().filter(|(of, _)| of == name).count()).unwrap_or(i64::MAX)
    }

    /// What is asked about.
    pub fn known(&self) -> Vec<Uuid> {
        self.about.values().flat_map(|(_, intents)| intents.iter().copied()).collect()
    }

    /// Begins; `asking` gives what it could not conclude. It asks by [`while_leased`], so it ends by itself.
    pub fn begin(
        &mut self,
        name: &str,
        intents: Vec<Uuid>,
        asking: impl Future<Output = Vec<Uuid>> + Send + 'static,
    ) -> task::Id {
        let begun = self.tasks.spawn(asking);
        self.about.insert(begun.id(), (name.to_owned(), intents));
        begun.id()
    }

    /// What has ended without a conclusion since it was last asked for.
    pub fn take_unconcluded(&mut self) -> Vec<Uuid> {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.ended(ended);
        }
        std::mem::take(&mut self.unconcluded)
    }

    /// Keeps them for the next time.
    pub fn unconcluded(&mut self, intents: Vec<Uuid>) {
        self.unconcluded.extend(intents);
    }

    fn ended(&mut self, ended: Result<(task::Id, Vec<Uuid>), JoinError>) -> task::Id {
        match ended {
            Ok((id, left)) => {
                self.about.remove(&id);
                self.unconcluded.extend(left);
                id
            }
            Err(broken) => {
                tracing::error!(error = %broken, "a question broke off");
                let about = self.about.remove(&broken.id());
                self.unconcluded.extend(about.into_iter().flat_map(|(_, intents)| intents));
                broken.id()
            }
        }
    }

    /// Waits until no question is under way any more.
    pub async fn finish(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Waits for these, but not for ever.
    pub async fn wait_for(&mut self, mut begun: HashSet<task::Id>) {
        let enough = tokio::time::sleep(PATIENCE);
        tokio::pin!(enough);
        while !begun.is_empty() {
            let ended = tokio::select! {
                ended = self.tasks.join_next_with_id() => ended,
                () = &mut enough => None,
            };
            let Some(ended) = ended else { return };
            begun.remove(&self.ended(ended));
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // What is written just now is written to its end.
        self.tasks.detach_all();
    }
}
