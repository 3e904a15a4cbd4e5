//! Ends drains when their time is over.

use std::future::pending;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};
use xds_cache::Publisher;

/// Tells the publisher the time whenever something has drained; for ever.
pub async fn drive(publisher: Arc<Publisher>) {
    let mut drain_end = publisher.drain_end();
    loop {
        let end = *drain_end.borrow_and_update();
        let is_over = async {
            match end {
                Some(end) => sleep_until(Instant::from_std(end)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = is_over => publisher.end_drains(Instant::now().into_std()),
            // The publisher is held here, so it is not gone.
            _ = drain_end.changed() => {}
        }
    }
}
