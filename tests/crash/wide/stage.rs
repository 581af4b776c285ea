//! What the scenes share: a private Postgres, the totals, and lines that say how far it is.

use std::time::Instant;

use settled::demo::cluster::{Access, Cluster, Options};
use sqlx::postgres::PgPoolOptions;

use crate::{count::Count, db::Database};

const DATABASE: &str = "crash";

/// What one run of the suite has done.
#[derive(Default)]
pub struct Totals {
    /// SIGKILLs of a daemon.
    pub kills: usize,
    /// Cuts of Postgres.
    pub cuts: usize,
    /// What became of the intents.
    pub count: Count,
}

impl Totals {
    /// For programs: the last line.
    pub fn last_line(&self) -> String {
        let Self { kills, cuts, count } = self;
        let Count { intents, lost, doubled, with_a_person, .. } = count;
        format!(
            "kills={kills} cuts={cuts} intents={intents} lost={lost} doubled={doubled} with_a_person={with_a_person}"
        )
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.cuts += other.cuts;
        self.count += other.count;
    }
}

/// Says how far a scene is.
pub struct Telling {
    scene: &'static str,
    began: Instant,
}

impl Telling {
    /// Begins a scene.
    pub fn begin(scene: &'static str) -> Self {
        let this = Self { scene, began: Instant::now() };
        this.says("begins");
        this
    }

    /// A line with the time since the beginning of the scene.
    pub fn says(&self, what: &str) {
        println!("{:>4} s  {}: {what}", self.began.elapsed().as_secs(), self.scene);
    }
}

/// A cluster of its own: everybody may connect, and it goes with the value.
pub async fn cluster() -> Cluster {
    let start = || Cluster::start(&Options { access: Access::Trust, keep: false });
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// A migrated database in it.
pub async fn database(cluster: &Cluster) -> Database {
    let (server, url) = (cluster.url("postgres"), cluster.url(DATABASE));
    settled::demo::application::create_database(&server, DATABASE).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(12).connect(&url).await.unwrap();
    let mut conn = pool.acquire().await.unwrap();
    settled::store::migrations::run(&mut conn).await.unwrap();
    drop(conn);
    Database { pool, url, name: DATABASE.to_owned(), server, owns: false }
}
