//! Watches all servers during the run, and judges what everyone was told at its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use xds_tests::http::Http;

use crate::faults::checker::{self, Kind, Operation};
use crate::faults::clients::Sequences;
use crate::faults::writers::{Board, N_OBJECTS, Record, name};

/// Everything that the servers said about their revisions.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Who made each revision, and what it is said to be.
    revisions: BTreeMap<u64, (String, String)>,
    /// What was served at each revision.
    fingerprints: BTreeMap<u64, String>,
    /// The newest revision of each server.
    newest: BTreeMap<usize, u64>,
}

impl Watch {
    /// Looks at all servers again and again until the run is over.
    pub(crate) async fn run(board: Arc<Board>) -> Result<Self> {
        let mut watch = Self::default();
        while !board.is_over() {
            for server in 0..board.addresses.len() {
                watch.look(&board, server, LIMIT).await?;
            }
            sleep(INTERVAL).await;
        }
        Ok(watch)
    }

    /// Looks at one server; that it does not answer is no fault.
    ///
    /// # Errors
    ///
    /// If it contradicts what was said before.
    pub(crate) async fn look(&mut self, board: &Board, server: usize, limit: usize) -> Result<()> {
        let base = format!("http://{}", board.addresses[server].admin);
        let (http, history) = (Http::new(), format!("{base}/v1/history?limit={limit}"));
        if let Ok(Ok(answer)) = timeout(PATIENCE, http.get(&history)).await
            && answer.status.is_success()
        {
            self.take_history(server, &answer.json()?)?;
        }
        if let Ok(Ok(answer)) = timeout(PATIENCE, http.get(&format!("{base}/v1/replicas"))).await
            && answer.status.is_success()
        {
            self.take_fingerprints(&answer.json()?)?;
        }
        Ok(())
    }

    fn take_history(&mut self, server: usize, history: &Value) -> Result<()> {
        let entries = history["revisions"].as_array().context("revisions")?;
        for entry in entries {
            let revision = entry["revision"].as_u64().context("revision")?;
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let is = (text("actor"), text("summary"));
            let was = self.revisions.entry(revision).or_insert_with(|| is.clone());
            ensure!(*was == is, "revision {revision} was {was:?}, and is {is:?} at server {server}");
        }
        let newest = entries.first().and_then(|entry| entry["revision"].as_u64()).unwrap_or(0);
        let before = self.newest.insert(server, newest).unwrap_or(0);
        ensure!(newest >= before, "server {server} went back from revision {before} to {newest}");
        Ok(())
    }

    fn take_fingerprints(&mut self, list: &Value) -> Result<()> {
        for one in list["replicas"].as_array().into_iter().flatten() {
            let (Some(revision), Some(is)) = (one["revision"].as_u64(), one["fingerprint"].as_str()) else {
                continue;
            };
            let was = self.fingerprints.entry(revision).or_insert_with(|| is.to_owned());
            ensure!(was == is, "at revision {revision}, {} serves {is}, and others {was}", one["id"]);
        }
        Ok(())
    }

    /// Each acknowledged write is in the history, once and with its revision; each repeated write at most once.
    pub(crate) fn check_acknowledged(&self, records: &[Record]) -> Result<()> {
        let mut by_value = BTreeMap::new();
        for (revision, (actor, _)) in &self.revisions {
            if let Some(value) = actor.strip_prefix("value-") {
                let other = by_value.insert(value.parse::<u64>()?, *revision);
                ensure!(other.is_none(), "value {value} is in the revisions {other:?} and {revision}");
            }
        }
        for record in records {
            let (Kind::Write(value) | Kind::Exchange { new: value, .. }) = record.operation.kind else {
                continue;
            };
            if let Some(revision) = record.revision {
                let found = by_value.get(&value);
                ensure!(
                    found == Some(&revision),
                    "value {value} was told revision {revision}, and has {found:?}"
                );
            }
        }
        Ok(())
    }

    /// No step of a rollout was done twice: each is said once in the history.
    pub(crate) fn check_rollouts(&self) -> Result<()> {
        let mut said = BTreeMap::new();
        for (revision, (_, summary)) in &self.revisions {
            // Another server that goes on with one says so each time.
            if summary.starts_with("rollout ") && !summary.ends_with(": goes on") {
                let other = said.insert(summary, revision);
                let all = || self.revisions.iter().filter(|(_, (_, other))| other.starts_with("rollout "));
                ensure!(
                    other.is_none(),
                    "{summary:?} is in the revisions {other:?} and {revision}: {:#?}",
                    all().collect::<Vec<_>>()
                );
            }
        }
        Ok(())
    }

    /// The history of each object has an order, and no read found what a revision that it asked for had replaced.
    pub(crate) fn check_objects(&self, records: &[Record]) -> Result<()> {
        let revisions = self.revisions_of_values();
        for object in 0..N_OBJECTS {
            let of_object = records.iter().filter(|record| record.object == object);
            let operations = of_object.clone().map(|record| record.operation).collect::<Vec<Operation>>();
            checker::check(&operations).map_err(|error| anyhow::anyhow!("{}: {error}", name(object)))?;
            let acknowledged = of_object.clone().filter_map(|one| match one.operation.kind {
                Kind::Write(_) | Kind::Exchange { .. } => one.revision,
                Kind::Read(_) => None,
            });
            let mut acknowledged = acknowledged.collect::<Vec<_>>();
            acknowledged.sort_unstable();
            for record in of_object {
                let (Kind::Read(value), Some(asked)) = (record.operation.kind, record.revision) else {
                    continue;
                };
                let found =
                    revisions.get(&value).with_context(|| format!("value {value} was never written"))?;
                let newest = acknowledged[..acknowledged.partition_point(|one| *one <= asked)].last();
                ensure!(
                    newest.is_none_or(|newest| found >= newest),
                    "{} was read at revision {asked} or later, with value {value} of {found}; {newest:?} replaced it",
                    name(object)
                );
            }
        }
        Ok(())
    }

    /// No stream brought an object in a state older than one that it had brought before.
    pub(crate) fn check_streams(&self, sequences: &Sequences) -> Result<()> {
        let revisions = self.revisions_of_values();
        for (object, values) in sequences.iter().flatten() {
            // Other clusters have no such values.
            if !object.starts_with("object-") {
                continue;
            }
            let order = values.iter().map(|value| revisions.get(value).copied()).collect::<Option<Vec<_>>>();
            let order =
                order.with_context(|| format!("{object} had a value that was never written: {values:?}"))?;
            ensure!(order.is_sorted(), "{object} went back within a stream: revisions {order:?}");
        }
        Ok(())
    }

    /// Every number has its revision; else something was not looked at.
    pub(crate) fn check_whole(&self) -> Result<u64> {
        let newest = self.revisions.keys().next_back().copied().unwrap_or(0);
        let missing = (1..=newest).find(|revision| !self.revisions.contains_key(revision));
        ensure!(missing.is_none(), "revision {missing:?} of {newest} was never seen");
        Ok(newest)
    }

    fn revisions_of_values(&self) -> BTreeMap<u64, u64> {
        let value = |(revision, (actor, _)): (&u64, &(String, String))| {
            Some((actor.strip_prefix("value-")?.parse().ok()?, *revision))
        };
        self.revisions.iter().filter_map(value).collect()
    }
}

/// More revisions than are made between two looks.
pub(crate) const LIMIT: usize = 300;
const INTERVAL: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A history with one revision for each value, from revision 1 on.
    fn watched(values: &[u64]) -> Watch {
        let mut watch = Watch::default();
        let of = |(at, value): (usize, &u64)| json!({"revision": at + 1, "actor": format!("value-{value}")});
        let revisions = values.iter().enumerate().map(of).rev().collect::<Vec<_>>();
        watch.take_history(0, &json!({ "revisions": revisions })).expect("it is good");
        watch
    }

    fn record(at: u64, kind: Kind, revision: u64) -> Record {
        let operation = Operation { called: at * 10, returned: Some(at * 10 + 5), kind };
        Record { object: 0, operation, revision: Some(revision) }
    }

    #[test]
    fn a_write_that_is_lost_or_there_twice_or_elsewhere_is_found() {
        let written = [record(1, Kind::Write(7), 1), record(2, Kind::Write(8), 2)];
        assert!(watched(&[7, 8]).check_acknowledged(&written).is_ok());
        for bad in [&[7][..], &[8, 7], &[7, 8, 7]] {
            assert!(watched(bad).check_acknowledged(&written).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_step_that_was_done_twice_is_found() {
        let mut watch = Watch::default();
        let step = |at: u64, what: &str| json!({"revision": at, "summary": format!("rollout a: {what}")});
        watch
            .take_history(0, &json!({"revisions": [step(2, "20 %"), step(1, "started")]}))
            .expect("it is good");
        assert!(watch.check_rollouts().is_ok());
        watch.take_history(0, &json!({"revisions": [step(3, "20 %")]})).expect("it is good");
        assert!(watch.check_rollouts().is_err());
    }

    #[test]
    fn a_read_of_what_was_replaced_is_found_though_it_may_take_effect_early() {
        let read = |value, asked| {
            let operation = Operation { called: 25, returned: Some(99), kind: Kind::Read(value) };
            Record { object: 0, operation, revision: Some(asked) }
        };
        let mut written = [record(1, Kind::Write(7), 1), record(2, Kind::Write(8), 2)];
        written[1].operation.returned = Some(50);
        for (value, asked, is_good) in [(8, 2, true), (7, 1, true), (7, 2, false), (9, 2, false)] {
            let records = [&written[..], &[read(value, asked)]].concat();
            assert_eq!(watched(&[7, 8]).check_objects(&records).is_ok(), is_good, "{value} at {asked}");
        }
    }

    #[test]
    fn servers_that_go_back_or_differ_are_found() {
        let mut watch = watched(&[7, 8]);
        let back = json!({"revisions": [{"revision": 1, "actor": "value-7"}]});
        let other = json!({"revisions": [{"revision": 2, "actor": "value-9"}]});
        assert!(watch.take_history(1, &back).is_ok(), "another server may be late");
        assert!(watch.take_history(0, &back).is_err() && watch.take_history(1, &other).is_err());
        let serves = |what: &str| json!({"replicas": [{"revision": 2, "fingerprint": what, "id": "a"}]});
        assert!(
            watch.take_fingerprints(&serves("x")).is_ok() && watch.take_fingerprints(&serves("y")).is_err()
        );
    }

    #[test]
    fn streams_that_go_back_are_found() {
        let stream = |values: &[u64]| vec![BTreeMap::from([("object-0".to_owned(), values.to_vec())])];
        let watch = watched(&[7, 8]);
        assert!(watch.check_streams(&stream(&[7, 8])).is_ok());
        for bad in [&[8, 7][..], &[7, 9]] {
            assert!(watch.check_streams(&stream(bad)).is_err(), "{bad:?}");
        }
    }
}
