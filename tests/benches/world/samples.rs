//! Repeated measurements of one kind of change.

use std::time::{Duration, Instant};

use anyhow::Result;
use xds_tests::footprint::Meter;

/// The times that one kind of change took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples {
    /// The median until the change was answered or seen.
    pub(crate) median: Duration,
    /// Processor time of the server for one, on average.
    pub(crate) cpu: Duration,
}

/// How often each change is made.
const N_SAMPLES: usize = 25;

/// Makes a change again and again; the argument counts from 0. The first is not counted: it fills caches.
pub(crate) async fn sample(
    meter: Meter,
    mut change: impl AsyncFnMut(usize) -> Result<()>,
) -> Result<Samples> {
    change(0).await?;
    let mut took = Vec::new();
    let before = meter.cpu()?;
    for i in 1..=N_SAMPLES {
        let begun = Instant::now();
        change(i).await?;
        took.push(begun.elapsed());
    }
    let cpu = meter.cpu()?.saturating_sub(before) / u32::try_from(N_SAMPLES)?;
    took.sort_unstable();
    Ok(Samples { median: took.get(took.len() / 2).copied().unwrap_or_default(), cpu })
}

impl Samples {
    /// As a cell of a table.
    pub(crate) fn cell(&self) -> String {
        format!("{:.1} / {:.1} ms", self.median.as_secs_f64() * 1e3, self.cpu.as_secs_f64() * 1e3)
    }
}
