//! Runs the protocol scenarios of `fixtures/scenarios/{sotw,delta}/*.txt`.
//!
//! A scenario is blocks of commands and of what they lead to, separated by `----`; blocks are separated by blank lines. The
//! first line is a comment: one sentence that says what must hold, then the rules, pitfalls and rows that it covers.
//! `UPDATE_EXPECT=1 cargo test -p xds-session --test session scenarios` writes what happens into the files; read the difference before
//! you commit it. The commands are described in `scenario/mod.rs`.
//!
//! The server side is the real thing without transport: the publisher, clients and status board of `xds-cache`, driven as the
//! gRPC layer drives them. Every stream that is not paused is polled after each command until it is silent, so that
//! `(silent)` means that nothing was owed.
//!
//! Pitfalls that only a transport, a real client or the sources can show are tested elsewhere: 5 (an ACK within microseconds:
//! by construction here, the nonce is remembered before the response is handed out; over sockets in `tests/`), 11's second half
//! (the same name in two files: `server::source`), 38 (a removal that something still refers to: the codec's reference check),
//! 39 (streams that do not read: paused here, over sockets in `tests/`), 54 (an abrupt disconnect: `tests/`;
//! leaving the status board: `xds-cache`), 55 (publications back to back: `xds-cache`, `tests/publishing.rs`).

use std::path::{Path, PathBuf};

use crate::scenario::{self, Outcome};

fn scenario_files(variant: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/scenarios").join(variant);
    let entries = std::fs::read_dir(&directory).expect("the directory of the scenarios");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

fn run_all(variant: &str) {
    let files = scenario_files(variant);
    assert!(!files.is_empty(), "no scenarios of {variant}");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut failures = Vec::new();
    for path in files {
        let name = format!("{variant}/{}", path.file_name().expect("a file").to_string_lossy());
        let text = std::fs::read_to_string(&path).expect("readable");
        match scenario::run(&text) {
            Outcome::AsExpected => {}
            Outcome::Different { actual, .. } if update => std::fs::write(&path, actual).expect("writable"),
            Outcome::Different { difference, .. } => failures.push(format!("{name}: {difference}")),
            Outcome::Malformed(reason) => failures.push(format!("{name}: {reason}")),
        }
    }
    assert!(failures.is_empty(), "{} scenarios failed\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn sotw_scenarios() {
    run_all("sotw");
}

#[test]
fn delta_scenarios() {
    run_all("delta");
}
