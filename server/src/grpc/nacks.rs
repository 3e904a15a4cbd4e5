//! Log lines for NACKs, with a limit for each second, and a count of the rest by type.
//!
//! If one client of a fleet rejects a resource, all of them do, at the same time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;
use xds_cache::{Node, ResourceType};

use crate::grpc::lines::{SECOND, Window};

/// Writes the lines of all streams and polls. Every call is short; memory is constant.
#[derive(Debug, Default)]
pub(crate) struct Nacks {
    window: Mutex<Window<LeftOut>>,
}

/// Logs the count of NACKs without a line when the server ends.
#[derive(Debug)]
pub(crate) struct Rest<'a>(&'a Nacks);

/// How often the NACKs of a stream, or of all polls, are logged, so that one client takes no lines from the others.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    last: Option<Instant>,
    n_left_out: u64,
}

/// The NACKs without a line of their own.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    /// By type, of at most [`MAX_TYPES`] types.
    by_type: BTreeMap<ResourceType, u64>,
    /// The NACKs of further types.
    n_others: u64,
}

impl Nacks {
    /// A client rejects a response.
    pub(crate) fn log(
        &self,
        repeats: &mut Repeats,
        node: &Node,
        resource_type: &ResourceType,
        (version, message): (&str, &str),
        now: Instant,
    ) {
        if !repeats.admit(now) {
            return;
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = window.turn(now);
        let admitted = window.admit().map_err(|sum| sum.add(resource_type));
        drop(window);
        left_out.log();
        if admitted.is_ok() {
            let (type_url, n_left_out) = (resource_type.type_url(), std::mem::take(&mut repeats.n_left_out));
            warn!(node = %node.id, type_url, version, message, n_left_out, "a client rejected a response");
        }
    }

    /// Logs how many NACKs had no line, once their second is over. To be called about every second.
    pub(crate) fn flush(&self, now: Instant) {
        let left_out = self.window.lock().unwrap_or_else(PoisonError::into_inner).turn(now);
        left_out.log();
    }

    /// Logs, when it is dropped, how many NACKs had no line until then.
    pub(crate) fn rest(&self) -> Rest<'_> {
        Rest(self)
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.flush(Instant::now() + SECOND);
    }
}

impl Repeats {
    fn admit(&mut self, now: Instant) -> bool {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < REPEAT_INTERVAL) {
            self.n_left_out += 1;
            return false;
        }
        self.last = Some(now);
        true
    }
}

impl LeftOut {
    fn add(&mut self, resource_type: &ResourceType) {
        if let Some(n) = self.by_type.get_mut(resource_type) {
            *n += 1;
        } else if self.by_type.len() < MAX_TYPES {
            self.by_type.insert(resource_type.clone(), 1);
        } else {
            self.n_others += 1;
        }
    }

    fn n_all(&self) -> u64 {
        self.by_type.values().fold(self.n_others, |sum, n| sum.saturating_add(*n))
    }

    /// `99980 of Cluster, 3 of Listener`.
    fn types(&self) -> String {
        let types = self.by_type.iter().map(|(resource_type, n)| format!("{n} of {resource_type}"));
        let others = (self.n_others > 0).then(|| format!("{} of other types", self.n_others));
        types.chain(others).collect::<Vec<_>>().join(", ")
    }

    fn log(&self) {
        let n_nacks = self.n_all();
        if n_nacks > 0 {
            warn!(n_nacks, types = self.types(), "… and {n_nacks} more responses were rejected");
        }
    }
}

/// A stream's NACKs are logged at most once in this time.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// About the number of types of xDS. Clients can make up any number of further ones.
const MAX_TYPES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::lines::MAX_LINES_A_SECOND;

    #[test]
    fn a_fleet_that_rejects_takes_a_bounded_number_of_lines_and_every_nack_is_counted() {
        const N_CLIENTS: u64 = 100_000;
        let (mut window, start) = (Window::<LeftOut>::default(), Instant::now());
        let (mut n_shown, mut n_counted, mut n_sums) = (0, 0, 0);
        for i in 0..=N_CLIENTS {
            // All of them within ten seconds, and one that comes late.
            let now = start + Duration::from_micros(i * 100);
            let left_out = window.turn(now);
            n_counted += left_out.n_all();
            n_sums += u64::from(left_out != LeftOut::default());
            match window.admit() {
                Ok(()) => n_shown += 1,
                Err(sum) => sum.add(&ResourceType::Cluster),
            }
        }
        assert_eq!(n_shown, 10 * MAX_LINES_A_SECOND as u64 + 1);
        assert_eq!((n_sums, n_shown + n_counted), (10, N_CLIENTS + 1), "one sum a second");
    }

    #[test]
    fn what_is_left_out_is_told_by_type_and_types_have_a_bound() {
        let mut left_out = LeftOut::default();
        for resource_type in [ResourceType::Cluster, ResourceType::Listener, ResourceType::Cluster] {
            left_out.add(&resource_type);
        }
        let types = left_out.types();
        assert!(types.contains("2 of Cluster") && types.contains("1 of Listener"), "{types}");
        for n in 0..1_000 {
            left_out.add(&ResourceType::from_type_url(&format!("type.googleapis.com/t.T{n}")));
        }
        assert_eq!((left_out.by_type.len(), left_out.n_all()), (MAX_TYPES, 1_003));
        assert!(
            left_out.types().ends_with(&format!("{} of other types", 1_002 - MAX_TYPES)),
            "{}",
            left_out.types()
        );
    }

    #[test]
    fn the_nacks_of_one_stream_take_one_line_a_second() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let admitted: Vec<bool> = [0, 10, 999, 1_000, 1_500]
            .iter()
            .map(|millis| repeats.admit(now + Duration::from_millis(*millis)))
            .collect();
        assert_eq!((admitted, repeats.n_left_out), (vec![true, false, false, true, false], 3));
    }
}
