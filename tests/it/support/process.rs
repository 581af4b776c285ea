//! A daemon that dies as by SIGKILL: it lives in a runtime of its own, and with the runtime every task, connection and
//! result in hand is gone at one instant.

use sqlx::postgres::PgPoolOptions;

use super::{db::Database, world::World};

impl Database {
    /// Another handle with connections of its own, as another process has; made in the runtime that uses it.
    pub async fn again(url: &str) -> Self {
        let pool = PgPoolOptions::new().max_connections(12).connect(url).await.unwrap();
        Self { pool, url: url.to_owned(), name: String::new(), server: String::new(), owns: false }
    }

    /// Sets a parameter for every session that begins from now on; see [`Database::again`].
    pub async fn set(&self, parameter: &str, value: &str) {
        let text = format!("alter database {} set {parameter} = '{value}'", self.name);
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&self.pool).await.unwrap();
    }
}

/// Runs `life` in a daemon over this database, then kills it. What `life` returns is all that comes back.
pub async fn killed_after<T, L>(url: &str, destinations: &[String], life: L) -> T
where
    T: Send + 'static,
    L: AsyncFnOnce(&mut World) -> T + Send + 'static,
{
    let (url, destinations) = (url.to_owned(), destinations.to_vec());
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut left = None;
        let told = runtime.block_on(async {
            let mut world = World::over(Database::again(&url).await, &destinations, 1, "k1").await;
            let told = life(&mut world).await;
            left = Some(world);
            told
        });
        drop(runtime);
        drop(left);
        told
    });
    tokio::task::spawn_blocking(move || dead.join().unwrap()).await.unwrap()
}
