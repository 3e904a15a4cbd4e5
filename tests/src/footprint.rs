//! The memory and processor time that a process spends on something.
//!
//! The kernel keeps the figures: the peak of resident memory (`VmHWM`), which can be reset, and processor time in ticks
//! of 10 ms. Both belong to the whole process, so a measurement counts everything that happens meanwhile.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::server::Server;

/// Measures one process.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    pid: u32,
}

/// A measurement under way.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    meter: Meter,
    resident: u64,
    cpu: Duration,
}

/// The cost of something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Resident bytes at the worst moment, above those at the beginning.
    pub peak: u64,
    /// Resident bytes at the end, above those at the beginning.
    pub kept: u64,
    /// Processor time of all threads.
    pub cpu: Duration,
}

impl Meter {
    /// Measures a running server.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn of(server: &Server) -> Result<Self> {
        Ok(Self { pid: server.id().context("the server has ended")? })
    }

    /// Measures a running process.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        Self { pid }
    }

    /// Begins to measure; the peak of before is forgotten.
    ///
    /// # Errors
    ///
    /// If the process has ended, or the kernel does not say.
    pub fn begin(self) -> Result<Measurement> {
        // 5 resets the peak: proc(5).
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").context("the peak cannot be reset")?;
        Ok(Measurement { meter: self, resident: self.resident()?, cpu: self.cpu()? })
    }

    /// Resident bytes now.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn resident(self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The peak of resident bytes since the last [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn peak(self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// Processor time of all threads since the process began.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn cpu(self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("the server has ended")?;
        // The name before the parenthesis may hold anything; user and system time are fields 14 and 15 of all.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * TICK_MS))
    }

    fn status(self, key: &str) -> Result<u64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid)).context("the server has ended")?;
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context(key.to_owned())?;
        Ok(kib.trim().parse::<u64>()? * 1024)
    }
}

impl Measurement {
    /// The cost up to now.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn cost(&self) -> Result<Cost> {
        let above = |bytes: u64| bytes.saturating_sub(self.resident);
        Ok(Cost {
            peak: above(self.meter.peak()?),
            kept: above(self.meter.resident()?),
            cpu: self.meter.cpu()?.saturating_sub(self.cpu),
        })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "peak {:.1} MiB, kept {:.1} MiB, {:?} of processor time",
            mib(self.peak),
            mib(self.kept),
            self.cpu
        )
    }
}

/// Linux shows processor time to programs in units of 1/100 s.
const TICK_MS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured() {
        let meter = Meter { pid: std::process::id() };
        let measurement = meter.begin().unwrap();
        // Much more than the tests beside this one take and give back meanwhile.
        let large = vec![1_u8; 256 << 20];
        assert!(large.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
        drop(large);
        let cost = measurement.cost().unwrap();
        assert!(cost.peak > 128 << 20, "{cost}");
        assert!(cost.kept < cost.peak, "{cost}");
    }
}
