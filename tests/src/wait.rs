//! Waiting for something to become true.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// How long tests wait for what should take milliseconds, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Calls `probe` until it gives a value.
///
/// A probe says what it saw in its error: `ensure!(n == 3, "n is {n}")`. It is called at least once, and
/// given up when it hangs.
///
/// # Errors
///
/// If there is no value within `limit`; the error holds the last one of the probe.
pub async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut last = anyhow!("the first look did not end");
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => last = last.context("the last look did not end; the one before"),
        }
        if Instant::now() >= deadline {
            bail!("waited {limit:?} for {what}; in the end: {last:#}");
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Short beside everything that is waited for, long beside a request on loopback.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::ensure;

    use super::*;

    #[tokio::test]
    async fn the_last_value_is_in_the_error() {
        let n = Cell::new(0);
        let probe = async || {
            n.set(n.get() + 1);
            ensure!(n.get() > 1000, "n is {}", n.get());
            Ok(())
        };
        let error = wait_for("a thousand", Duration::from_millis(50), probe).await.unwrap_err();
        assert_eq!(error.to_string(), format!("waited 50ms for a thousand; in the end: n is {}", n.get()));
    }

    #[tokio::test]
    async fn a_probe_that_hangs_is_given_up() {
        let probe = async || std::future::pending::<Result<()>>().await;
        let error = wait_for("nothing", Duration::from_millis(50), probe).await.unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }
}
