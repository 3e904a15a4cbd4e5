//! The list of pitfalls is complete and true.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use xds_tests::pitfalls::{PITFALLS, Proof};

#[test]
fn every_pitfall_has_a_proof_that_exists() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let numbers: Vec<_> = PITFALLS.iter().map(|pitfall| pitfall.number).collect();
    assert_eq!(numbers, (1..=79).collect::<Vec<_>>());
    let mut files = BTreeMap::new();
    let mut wrong = Vec::new();
    for pitfall in PITFALLS {
        if pitfall.proofs.is_empty() {
            wrong.push(format!("{}: no proof", pitfall.number));
        }
        for proof in pitfall.proofs {
            let is_there = match proof {
                Proof::Test(file, name) => {
                    if !files.contains_key(file) {
                        files.insert(*file, fs::read_to_string(root.join(file)).context(*file)?);
                    }
                    // A test whose attribute was taken away is none.
                    let text = &files[file];
                    let before = text.split(&format!("fn {name}(")).next().unwrap_or_default();
                    before.len() < text.len()
                        && before.lines().rev().take(6).any(|line| line.contains("test"))
                }
                Proof::Scenario(file) => root.join("fixtures/scenarios").join(file).is_file(),
            };
            if !is_there {
                wrong.push(format!("{}: {proof:?} is not there", pitfall.number));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
