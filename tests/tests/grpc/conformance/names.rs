//! The names of conformance tests that `docs/documents.md` claims are those of tests that are here.
//!
//! A test is linked by its doc comment: `/// Conformance: NAME.`, with several names between commas.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Where tests may be linked, from the root of the repository.
const SOURCES: [&str; 3] = ["tests/tests", "routes/tests", "routes/src/plan/tests"];

const LINK: &str = "/// Conformance: ";

#[test]
fn every_claim_is_a_test_and_every_linked_test_is_claimed() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/documents.md"))?;
    let mut linked: BTreeMap<String, String> = BTreeMap::new();
    for directory in SOURCES {
        for path in sources(&root.join(directory))? {
            let text = fs::read_to_string(&path)?;
            let found = links(&text).with_context(|| path.display().to_string())?;
            linked.extend(found.into_iter().map(|name| (name, path.display().to_string())));
        }
    }
    let (claimed, left_out) = claims(&page)?;
    ensure!(
        claimed.len() > 30 && left_out.contains("TLSRoute"),
        "the page has another form: {claimed:?}, {left_out:?}"
    );
    let missing: Vec<&String> = claimed.iter().filter(|name| !linked.contains_key(*name)).collect();
    ensure!(missing.is_empty(), "docs/documents.md claims what no test is linked to: {missing:?}");
    let silent: Vec<_> = linked.iter().filter(|(name, _)| !claimed.contains(*name)).collect();
    ensure!(silent.is_empty(), "docs/documents.md does not claim what tests are linked to: {silent:?}");
    let contradicted: Vec<_> =
        linked.keys().filter(|name| left_out.iter().any(|kind| name.starts_with(kind.as_str()))).collect();
    ensure!(contradicted.is_empty(), "docs/documents.md says that these are left out: {contradicted:?}");
    Ok(())
}

#[test]
fn a_link_must_stand_before_a_test() -> Result<()> {
    let test = "/// More.\n#[tokio::test]\n#[ignore]\nasync fn a() {}\n";
    ensure!(links(&format!("{LINK}A, B.\n{test}"))? == ["A", "B"]);
    for bad in ["fn a() {}\n", "", "/// More.\nfn a() {}\n"] {
        ensure!(links(&format!("{LINK}A.\n{bad}")).is_err(), "{bad:?}");
    }
    Ok(())
}

/// The names that the table of the page claims, and the kinds that the sentence below it leaves out.
fn claims(page: &str) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let section = page.split("### Channels and conformance\n").nth(1).context("the section")?;
    let (table, rest) = section.split_once("\nLeft out today: ").context("what is left out")?;
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = rows.map(|row| row.split('|').nth(3).context("a third column"));
    let mut claimed = BTreeSet::new();
    for cell in cells {
        claimed.extend(names(cell?));
    }
    let sentence = rest.split(';').next().unwrap_or_default();
    let words = sentence.split([',', ' ', '\n']).map(|word| word.trim_matches('`'));
    let kinds = words.filter(|word| word.starts_with(char::is_uppercase)).map(ToOwned::to_owned);
    Ok((claimed, kinds.collect()))
}

fn names(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The names that the tests of a source are linked to.
fn links(text: &str) -> Result<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(list) = line.trim_start().strip_prefix(LINK) else { continue };
        let below = lines.get(index + 1..).unwrap_or_default().iter().map(|line| line.trim_start());
        let first = below.into_iter().find(|line| !line.starts_with("///"));
        let is_test =
            first.is_some_and(|line| ["#[test]", "#[tokio::test"].iter().any(|test| line.starts_with(test)));
        ensure!(is_test, "line {}: no test follows {line:?}", index + 1);
        found.extend(names(list.trim_end_matches('.')));
    }
    Ok(found)
}

/// The Rust files below a directory, but for this one.
fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("conformance/names.rs") {
            found.push(path);
        }
    }
    Ok(found)
}
