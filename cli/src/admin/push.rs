//! `push`: the files of a directory, in place of those of a store that several servers share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use http::Method;
use serde_json::json;
use xds_files::read::{ReadOptions, Reader};
use xds_settings::units::parse_size;

use super::writes::{Change, WriteFlags};
use crate::failure::Failure;
use crate::offline;

/// The flags of `push`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct PushArgs {
    /// The directory; files are read as with --watch
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Also push what would be held back, such as a removal of everything
    #[arg(long)]
    confirm: bool,
    /// Push only if the servers serve the set with this hash: `set` of `GET /v1/status/files`
    #[arg(long, value_name = "HASH")]
    if_set: Option<String>,
    /// Size limit of a file
    #[arg(long, env = "XDS_SERVER_MAX_FILE_BYTES", value_name = "SIZE", default_value = "10MiB",
        value_parser = parse_size)]
    max_file_bytes: usize,
    /// Follow symbolic links that lead out of the directory; without this flag they are errors
    #[arg(long, env = "XDS_SERVER_FOLLOW_SYMLINKS", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    follow_symlinks: bool,
    #[command(flatten)]
    write: WriteFlags,
}

const EXIT_CODES: &str = "Exit codes: 0 pushed, or nothing to do, 1 refused: errors in the files, or it needs --confirm, 2 wrong command \
line, 3 cannot reach the server, 4 pushed, and not all clients have it in time (--wait)";

pub(crate) fn push(args: &PushArgs) -> Result<(), Failure> {
    let root = &args.directory;
    if !root.is_dir() {
        return Err(Failure::Usage(format!("{} is not a directory", root.display())));
    }
    let texts = texts(args)?;
    let paths: BTreeSet<String> = texts.keys().cloned().collect();
    let tag = args.if_set.as_ref().map(|hash| format!("\"{}\"", hash.trim_matches('"')));
    let headers: Vec<(&str, &str)> = tag.iter().map(|tag| ("if-match", tag.as_str())).collect();
    let body = json!({"files": texts}).to_string().into_bytes();
    let change = Change {
        method: Method::PUT,
        path: "/v1/files",
        headers: &headers,
        body: Some(("application/json", body)),
    };
    let confirm: Vec<String> = args.confirm.then(|| "confirm=true".to_owned()).into_iter().collect();
    args.write.send_with(change, &confirm, |text| Failure::Failed(placed(&text, root, &paths)))
}

/// The text of each file, by its path below the directory.
fn texts(args: &PushArgs) -> Result<BTreeMap<String, String>, Failure> {
    let root = &args.directory;
    let options = ReadOptions {
        max_file_bytes: args.max_file_bytes,
        follows_links: args.follow_symlinks,
        ..ReadOptions::default()
    };
    let (_, scan) = Reader::new(std::slice::from_ref(root), options).scan(|_| false);
    let relative =
        |(path, text): (String, String)| (below(root, Path::new(&path)).display().to_string(), text);
    Ok(offline::texts(scan)?.into_iter().map(relative).collect())
}

/// A path relative to a root that it begins with; `./` says nothing in either.
fn below(root: &Path, path: &Path) -> PathBuf {
    let [root, path]: [PathBuf; 2] =
        [root, path].map(|path| path.components().filter(|part| *part != Component::CurDir).collect());
    path.strip_prefix(root).map(Path::to_owned).unwrap_or(path)
}

/// A refusal that names files as the caller finds them.
fn placed(text: &str, root: &Path, paths: &BTreeSet<String>) -> String {
    let line = |line: &str| match line.strip_prefix("  ").and_then(|rest| rest.split_once(':')) {
        Some((path, rest)) if paths.contains(path) => format!("  {}:{rest}", root.join(path).display()),
        Some(_) | None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_directory_however_it_is_written() {
        for (root, path) in [
            ("routes", "routes/b/c.yaml"),
            ("./routes", "routes/b/c.yaml"),
            ("./routes/", "./routes/b/c.yaml"),
            (".", "./b/c.yaml"),
            (".", "b/c.yaml"),
            ("/etc/routes", "/etc/routes/b/c.yaml"),
            ("../routes", "../routes/b/c.yaml"),
        ] {
            assert_eq!(below(Path::new(root), Path::new(path)), Path::new("b/c.yaml"), "{root} {path}");
        }
    }

    #[test]
    fn a_refusal_names_the_files_as_the_caller_finds_them() {
        let paths = BTreeSet::from(["a.yaml".to_owned(), "b/c.yaml".to_owned()]);
        let text = "invalid (HTTP 422)\n  a.yaml:2:3: no\n  b/c.yaml:5:1: x: no\n  elsewhere: a.yaml:1";
        let expected = "invalid (HTTP 422)\n  routes/a.yaml:2:3: no\n  routes/b/c.yaml:5:1: x: no\n  elsewhere: a.yaml:1";
        assert_eq!(placed(text, Path::new("routes"), &paths), expected);
    }
}
