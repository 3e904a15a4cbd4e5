//! Metrics of the process itself, as Prometheus names them; from `/proc`, hence on Linux only.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the metrics of this process whenever they are asked for. What cannot be read is left out.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
        };
        let stat = fs::read_to_string("/proc/self/stat").ok();
        gauge(
            "process_resident_memory",
            "Resident memory of the process",
            Some(&Unit::Bytes),
            resident_bytes(),
        )?;
        gauge("process_open_fds", "Open file descriptors of the process", None, open_fds())?;
        let start = stat.as_deref().and_then(start_time);
        gauge("process_start_time", "Start of the process, in Unix seconds", Some(&Unit::Seconds), start)?;
        if let Some(seconds) = stat.as_deref().and_then(cpu_seconds) {
            let counter = ConstCounter::new(seconds);
            let help = "CPU time of the process, user and system";
            counter.encode(encoder.encode_descriptor(
                "process_cpu",
                help,
                Some(&Unit::Seconds),
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn open_fds() -> Option<f64> {
    // The directory itself is open while it is counted.
    fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as f64)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS_PER_SECOND)
}

fn start_time(stat: &str) -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + field(stat, 22)? / TICKS_PER_SECOND)
}

/// A field of `/proc/self/stat`, counted from 1 as its manual page does. The second one is the program's name in
/// parentheses, which may hold anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// The ticks per second that Linux reports to user space on every architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "1 (a) b) S 4 5 6 7 8 9 10 11 12 13 1400 1500 16 17 18 19 20 21 2200 23";
        assert_eq!(field(stat, 4), Some(4.0));
        assert_eq!(cpu_seconds(stat), Some(29.0));
        assert_eq!(field(stat, 22), Some(2200.0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_files() {
        assert!(resident_bytes().unwrap() > 1e6);
        assert!(open_fds().unwrap() >= 3.0);
        assert!(start_time(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap() > 1.7e9);
    }
}
