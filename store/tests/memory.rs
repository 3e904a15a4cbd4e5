//! Memory that a store keeps, counted in allocated bytes.

mod common;

use std::path::Path;

use bytes::Bytes;
use common::{described, open, runtime};
use peak_alloc::PeakAlloc;
use xds_store::{Change, Store as _};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The one test of this file: another one beside it would be counted.
#[test]
fn a_value_costs_its_place_and_its_key_and_not_its_content() {
    let opened = |dir: &Path| {
        let before = ALLOCATED.current_usage();
        let store = open(dir).0;
        (ALLOCATED.current_usage() - before, store)
    };
    let empty = tempfile::tempdir().unwrap();
    // By now everything exists that a process makes only once.
    drop(opened(empty.path()));
    let (of_nothing, nothing) = opened(empty.path());
    let dir = tempfile::tempdir().unwrap();
    let before = ALLOCATED.current_usage();
    let (store, _) = open(dir.path());
    let contents = (0..N_VALUES).map(|n| Bytes::from(format!("{n:09}{}", "content".repeat(60)))).collect();
    runtime().block_on(async {
        let hashes = store.put_blobs(contents).await.unwrap();
        let change = |(n, hash)| Change::set(format!("file-document/Service/default/backend-{n}"), hash);
        let changes = hashes.into_iter().enumerate().map(change).collect();
        store.commit(store.head(), described(changes)).await.unwrap();
    });
    let of_committed = ALLOCATED.current_usage() - before;
    drop(store);
    let (of_all, store) = opened(dir.path());
    println!("{of_nothing} bytes for an empty store, {of_all} for this one");
    for (bytes, when) in [(of_committed, "after the commit"), (of_all, "after a start")] {
        let per_value = (bytes - of_nothing) / N_VALUES;
        println!("{per_value} bytes for each of {N_VALUES} values {when}");
        assert!(per_value <= MAX_BYTES_PER_VALUE, "{per_value} bytes for each value {when}");
    }
    drop((store, nothing));
}

/// The least number for which the table of places has doubled to 65,536, so that it is as empty as it gets.
const N_VALUES: usize = 28_673;

/// 57 for its place, 64 for its key, 48 for a full node of the map, and the rest for the nodes above.
const MAX_BYTES_PER_VALUE: usize = 195;
