//! A daemon that dies as by SIGKILL: it lives in a runtime of its own, and with the runtime every task, connection and
//! result in hand is gone at one instant.

use super::{db::Database, world::World};

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
