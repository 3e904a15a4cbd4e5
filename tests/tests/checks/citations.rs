//! Every citation leads somewhere: rules (A46, R7), decisions (D13) and pitfalls that comments name are on a page of this
//! repository, and every row of such a page names a test that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use xds_tests::pitfalls::PITFALLS;

const RULES: &str = "docs/design/protocol-rules.md";
const DECISIONS: &str = "docs/design/decisions.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";

#[test]
fn every_citation_has_a_row() {
    let known = known();
    let mut cited = BTreeSet::new();
    let mut dangling = Vec::new();
    for file in files(&root(), &["rs", "md", "txt"]) {
        let place = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        for (number, line) in read(&file).lines().enumerate() {
            for id in citations(prose(&place, line)) {
                if !known.contains(&id) {
                    dangling.push(format!("{place}:{}: {id}", number + 1));
                }
                cited.insert(id);
            }
        }
    }
    assert!(dangling.is_empty(), "no row for these:\n{}", dangling.join("\n"));
    assert!(cited.len() > 300, "{}: were they found?", cited.len());
}

#[test]
fn every_row_names_a_test_that_exists() {
    let mut wrong = Vec::new();
    let mut n_tests = 0;
    for row in rows(RULES) {
        for proof in row.cells.last().into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
            n_tests += 1;
            if !exists(proof, &row.id) {
                wrong.push(format!("{}: {proof}", row.id));
            }
        }
    }
    assert!(wrong.is_empty(), "not there, or without a word of the rule:\n{}", wrong.join("\n"));
    assert!(n_tests > 300, "{n_tests}: were they found?");
}

#[test]
fn citations_are_found_in_every_form() {
    let found = |text: &str| citations(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(found("held (row A46, D7; pitfall 5)"), "A46 D7 pitfall 5");
    assert_eq!(
        found("rows A91 to A93, B61–B62; pitfalls 40, 42 and 43"),
        "A91 A92 A93 B61 B62 pitfall 40 pitfall 42 pitfall 43"
    );
    assert_eq!(found("gRFCs A36 and A47, gRFCs A27 to A30 and gRFC A60; 0xA4, %C3, XA4, A4x"), "");
    assert_eq!(found("R1 to R3, R12."), "R1 R12 R2 R3");
}

/// A row of a table: its id, and its other cells.
struct Row {
    id: String,
    cells: Vec<String>,
}

/// The ids that pages of the repository explain. No page may explain one of another.
fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = PITFALLS.iter().map(|one| format!("pitfall {}", one.number)).collect();
    for row in [RULES, DECISIONS, ARCHITECTURE].into_iter().flat_map(rows) {
        assert!(known.insert(row.id.clone()), "{} has two rows", row.id);
    }
    known
}

fn rows(page: &str) -> Vec<Row> {
    let text = read(&root().join(page));
    let rows = text.lines().filter_map(|line| {
        let mut cells =
            line.strip_prefix("| ")?.trim_end_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
        let id = cells.next().filter(|cell| id_at(cell).is_some_and(|id| id.len() == cell.len()))?;
        Some(Row { id, cells: cells.collect() })
    });
    rows.collect()
}

/// Returns `true` if a proof is there: `PATH::TEST`, or a file of cases that names the rule.
fn exists(proof: &str, id: &str) -> bool {
    let (path, test) = proof.split_once("::").map_or((proof, None), |(path, test)| (path, Some(test)));
    let Ok(text) = fs::read_to_string(root().join(path)) else { return false };
    match test {
        Some(test) => {
            // A test whose attribute was taken away is none.
            let before = text.split(&format!("fn {test}(")).next().unwrap_or_default();
            before.len() < text.len() && before.lines().rev().take(6).any(|line| line.contains("test"))
        }
        None => text.lines().any(|line| citations(line).contains(id)),
    }
}

/// The part of a line that may cite: a comment, or the whole line in a document, in cases and in checks that carry ids.
fn prose<'l>(place: &str, line: &'l str) -> &'l str {
    let has_ids =
        ["codec/src/profile", "routes/src/emit/grpc/checker"].iter().any(|path| place.starts_with(path));
    if place.ends_with(".rs") && !has_ids {
        return line.find("//").map_or("", |at| line.get(at..).unwrap_or_default());
    }
    if has_ids || place.ends_with(".md") || line.starts_with('#') || line.starts_with("  ") {
        line
    } else {
        ""
    }
}

/// The ids that a text cites. gRFCs have ids of the same form, and pages of their own.
fn citations(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut last: Option<(usize, String)> = None;
    for (at, _) in text.char_indices() {
        let is_start = !text[..at].ends_with(|c: char| c.is_alphanumeric() || "%_#/.-".contains(c));
        let Some(id) = text.get(at..).and_then(id_at).filter(|_| is_start) else { continue };
        let between = last.as_ref().map_or("", |(end, _)| &text[*end..at]);
        let is_grfc = text[..at].ends_with("gRFC ") || text[..at].ends_with("gRFCs ");
        let goes_on = [" and ", ", ", " to "].contains(&between);
        let before = last.as_ref().map_or("", |(_, id)| id);
        if is_grfc || goes_on && before == GRFC {
            last = Some((at + id.len(), GRFC.to_owned()));
            continue;
        }
        if [" to ", "–"].contains(&between) {
            found.extend(range(before, id));
        }
        found.insert(id.to_owned());
        last = Some((at + id.len(), id.to_owned()));
    }
    found.extend(pitfalls(text));
    found
}

/// `pitfall 5`, `pitfalls 40, 42 and 43`, `pitfalls 40 to 43`.
fn pitfalls(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, word) in text.match_indices("pitfall") {
        let mut rest = text[at + word.len()..].trim_start_matches('s');
        let mut before: Option<u8> = None;
        let mut is_range = false;
        while let Some(number) = rest.strip_prefix(' ') {
            let digits = number.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let Ok(n) = digits.parse::<u8>() else { break };
            let from = before.filter(|_| is_range).unwrap_or(n);
            found.extend((from..=n).map(|n| format!("pitfall {n}")));
            before = Some(n);
            rest = &number[digits.len()..];
            is_range = rest.starts_with(" to ");
            let Some(next) = [",", " and", " to"].iter().find_map(|word| rest.strip_prefix(word)) else {
                break;
            };
            rest = next;
        }
    }
    found
}

/// The id that a text begins with: a letter of a page and up to three digits, with nothing more of a word behind it.
fn id_at(text: &str) -> Option<&str> {
    let number = text.strip_prefix(['A', 'B', 'C', 'D', 'R'])?;
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let is_end = !number[digits..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '%');
    (1..=3).contains(&digits).then_some(&text[..=digits]).filter(|_| is_end)
}

/// The ids from one to another of the same page.
fn range(from: &str, to: &str) -> Vec<String> {
    let number = |id: &str| id.get(1..).and_then(|digits| digits.parse::<u16>().ok()).unwrap_or_default();
    let letter = to.chars().next().unwrap_or_default();
    (number(from)..number(to)).map(|n| format!("{letter}{n}")).collect()
}

/// All files of the repository with one of these endings.
fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if name != "target" && !name.starts_with('.') {
                found.extend(files(&path, endings));
            }
        } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Stands for the id of a gRFC.
const GRFC: &str = "gRFC";
