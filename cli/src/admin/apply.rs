//! `apply`: route documents of files, given to the server as the API's.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use http::Method;

use super::connection::segment;
use super::writes::{Change, WriteFlags, YAML, read_file};
use crate::failure::Failure;

/// The flags of `apply`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Route documents as YAML or JSON: a file, a directory with everything below it, or - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE|DIR|-", required = true)]
    files: Vec<PathBuf>,
    /// Node group of the documents [default: the current group of each, or default]
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    #[command(flatten)]
    write: WriteFlags,
}

/// Where the text of a file begins in the body, as a line from 1.
struct Part {
    name: String,
    first_line: u64,
}

pub(crate) fn apply(args: &ApplyArgs) -> Result<(), Failure> {
    let mut paths = Vec::new();
    for path in &args.files {
        find(path, 0, &mut paths)?;
    }
    if paths.is_empty() {
        let names: Vec<String> = args.files.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::Usage(format!("there is no .yaml, .yml or .json file in {}", names.join(", "))));
    }
    let mut body = String::new();
    let mut parts = Vec::new();
    for path in &paths {
        let (media_type, bytes) = read_file(path)?;
        let name = path.display().to_string();
        let text = String::from_utf8(bytes)
            .map_err(|error| Failure::Usage(format!("{name} is not UTF-8 text: {error}")))?;
        add(&mut body, &mut parts, name, &if media_type == YAML { text } else { text.replace('\t', " ") });
    }
    let group = args.group.iter().map(|group| format!("group={}", segment(group))).collect::<Vec<_>>();
    let change = Change {
        method: Method::POST,
        path: "/v1/apply",
        headers: &[],
        body: Some((YAML, body.into_bytes())),
    };
    args.write.send_with(change, &group, |text| Failure::Failed(placed(&text, &parts)))
}

/// Adds a text to the documents. JSON is YAML but for tabs, which are only between its tokens.
fn add(body: &mut String, parts: &mut Vec<Part>, name: String, text: &str) {
    if !body.is_empty() {
        body.push_str("---\n");
    }
    parts.push(Part { name, first_line: body.lines().count() as u64 + 1 });
    body.push_str(text);
    if !body.ends_with('\n') {
        body.push('\n');
    }
}

/// Finds the files of a directory in the order of their names, or takes what is no directory as it is.
fn find(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.as_os_str() == "-" || !path.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let wrong = |error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    if depth > MAX_DEPTH {
        return Err(Failure::Usage(format!("{} is more than {MAX_DEPTH} directories deep", path.display())));
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(wrong)?;
    let mut entries: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        let is_hidden = entry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let extension = entry.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_document = EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known));
        if !is_hidden && (is_document || entry.is_dir()) {
            find(&entry, depth + 1, found)?;
        }
    }
    Ok(())
}

/// A refusal with the places of the files in place of those of the body.
fn placed(text: &str, parts: &[Part]) -> String {
    let mut placed = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            placed.push('\n');
        }
        match place_of(line, parts) {
            // Writing to a text does not fail.
            Some((place, rest)) => _ = write!(placed, "  {place}: {rest}"),
            None => placed.push_str(line),
        }
    }
    placed
}

fn place_of<'t>(line: &'t str, parts: &[Part]) -> Option<(String, &'t str)> {
    let (place, rest) = line.strip_prefix("  line ")?.split_once(": ")?;
    let (number, column) = place.split_once(':')?;
    let number: u64 = number.parse().ok()?;
    let part = parts.iter().rev().find(|part| part.first_line <= number)?;
    Some((format!("{}:{}:{column}", part.name, number - part.first_line + 1), rest))
}

/// Deeper than any configuration; a directory that links to itself ends here.
const MAX_DEPTH: usize = 32;
/// The files of a directory that are taken, as the server takes them.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_file_and_the_line_in_it() {
        let (mut body, mut parts) = (String::new(), vec![]);
        for (name, text) in [("a.yaml", "one\ntwo"), ("b.yaml", "three\nfour\n")] {
            add(&mut body, &mut parts, name.to_owned(), text);
        }
        assert_eq!(body, "one\ntwo\n---\nthree\nfour\n");
        let text = "invalid (HTTP 422)\n  line 2:3: no\n  line 5:1: #/a: no\n  elsewhere: x";
        let expected = "invalid (HTTP 422)\n  a.yaml:2:3: no\n  b.yaml:2:1: #/a: no\n  elsewhere: x";
        assert_eq!(placed(text, &parts), expected);
    }
}
