//! The rules of ARCHITECTURE.md and STYLE.md that Cargo and clippy do not hold: what a module may use, and what every file has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Code below `path` must not contain `words`, because of `reason`.
struct Rule {
    path: &'static str,
    words: &'static [&'static str],
    reason: &'static str,
}

const RULES: [Rule; 11] = [
    Rule {
        path: "cache/src",
        words: &[
            "std::fs",
            "TcpStream",
            "ToSocketAddrs",
            "Instant::now",
            "SystemTime::now",
            "tokio::spawn",
            "println!",
        ],
        reason: "the cache does no I/O, reads no clock and starts no task (invariant 1)",
    },
    Rule {
        path: "server/session/src",
        words: &[
            "std::fs",
            "TcpStream",
            "ToSocketAddrs",
            "Instant::now",
            "SystemTime::now",
            "tokio",
            "tonic",
            "prost",
        ],
        reason: "the session is sans-I/O: time and messages are passed in (D13)",
    },
    Rule {
        path: "codec/src",
        words: &[
            "std::fs",
            "TcpStream",
            "ToSocketAddrs",
            "Instant::now",
            "SystemTime::now",
            "tokio",
            "tonic::",
        ],
        reason: "the codec is pure (D1)",
    },
    Rule {
        path: "routes/src",
        words: &[
            "std::fs",
            "std::env",
            "TcpStream",
            "ToSocketAddrs",
            "Instant",
            "SystemTime",
            "std::thread",
            "tokio",
            "tonic",
            "RandomState",
        ],
        reason: "routes are pure, and the same documents always give the same (D1)",
    },
    Rule {
        path: "rollout/src",
        words: &[
            "std::fs",
            "std::env",
            "TcpStream",
            "ToSocketAddrs",
            "Instant",
            "SystemTime",
            "std::thread",
            "tokio",
            "tonic",
            "xds_cache",
            "xds_codec",
            "xds_control",
            "xds_routes",
            "xds_store",
            "RandomState",
        ],
        reason: "a rollout is a value: time is passed in, and what it wants done is told",
    },
    Rule {
        path: "api/src",
        words: &["tonic", "xds_server", "xds_session", "std::fs"],
        reason: "the API asks the control (D1), and knows nothing of gRPC (invariant 13)",
    },
    Rule {
        path: "server/src/source",
        words: &["crate::grpc", "xds_control::Control", "crate::run", "tonic", "axum"],
        reason: "files are a source: they give, and know nobody who takes (D2)",
    },
    Rule {
        path: "control/src",
        words: &["xds_api", "xds_server", "std::fs", "tonic", "axum", "http::", "StatusCode"],
        reason: "changes become publications without knowing who is served, or how errors look on a wire",
    },
    Rule {
        path: "server/src/rollouts",
        words: &["crate::grpc", "crate::source", "crate::run", "xds_store", "tonic", "axum"],
        reason: "rollouts are driven through the control and what is known of clients, whoever serves them",
    },
    Rule {
        path: "server/src/grpc",
        words: &["crate::source", "xds_control", "crate::run", "xds_store"],
        reason: "what serves clients does not know where configuration comes from",
    },
    Rule {
        path: "store/src",
        words: &["xds_cache", "xds_codec", "prost"],
        reason: "the store keeps bytes and knows no resources (D10)",
    },
];

/// Files that may use a word all the same, and why that breaks no rule.
const EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "routes/src/memo/side_by_side.rs",
    "std::thread",
    "its threads end with it, and what they give is taken in order",
)];

#[test]
fn modules_use_only_what_they_may() {
    let mut broken = Vec::new();
    for rule in &RULES {
        let files = rust_files(&root().join(rule.path));
        assert!(!files.is_empty(), "{} has no code; does it have another name now?", rule.path);
        for file in files {
            for (number, line) in code_lines(&file) {
                let place = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
                let is_excepted =
                    |word: &str| EXCEPTIONS.iter().any(|(path, one, _)| (*path, *one) == (&*place, word));
                if let Some(word) = rule.words.iter().find(|word| line.contains(**word) && !is_excepted(word))
                {
                    broken.push(format!("{place}:{number}: `{word}`: {}", rule.reason));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let mut broken = Vec::new();
    for file in all_files() {
        let place = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        if !read(&file).starts_with("//!") {
            broken.push(format!("{place}: begins without `//!`"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn nothing_is_left_undone() {
    // Put together, so that this file does not find itself.
    let words = ["todo", "unimplemented", "dbg"].map(|word| format!("{word}!("));
    let mut broken = Vec::new();
    for file in all_files() {
        for (number, line) in code_lines(&file) {
            if words.iter().any(|word| line.contains(word)) {
                broken.push(format!("{}:{number}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn modules_of_the_control_use_each_other_in_one_direction() {
    let mut left = uses(&root().join("control/src"));
    assert!(left.len() > 40 && left.values().map(BTreeSet::len).sum::<usize>() > 100, "{left:#?}");
    // A module that uses none of the others that are left, or that none of them uses, is in no circle.
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        left.values_mut().for_each(|used| used.retain(|one| names.contains(one)));
        let users: BTreeSet<String> = left.values().flatten().cloned().collect();
        left.retain(|module, used| !used.is_empty() && users.contains(module));
        if left.len() == names.len() {
            break;
        }
    }
    assert!(left.is_empty(), "these use each other in a circle, or are between two circles: {left:#?}");
}

/// The modules below a directory, each with those that it uses. The root of the crate is none: it only names the others, and what
/// it exports is used by its own path.
fn uses(directory: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files = rust_files(directory).into_iter().filter(|file| !file.ends_with("lib.rs"));
    let name = |file: &Path| {
        let inside = file.strip_prefix(directory).unwrap_or(file).with_extension("");
        let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts.join("::").trim_end_matches("::mod").to_owned()
    };
    let modules: BTreeMap<String, PathBuf> = files.map(|file| (name(&file), file)).collect();
    let used = modules.iter().map(|(module, file)| {
        let text: Vec<String> = code_lines(file).into_iter().map(|(_, line)| line).collect();
        let scope = if file.ends_with("mod.rs") { module.as_str() } else { above(module) };
        let paths = paths(&text.join("\n"), scope, file.ends_with("mod.rs"));
        let used: BTreeSet<String> = paths.iter().filter_map(|path| nearest(path, &modules)).collect();
        let foreign = paths.iter().filter(|path| nearest(path, &modules).is_none());
        let exported: Vec<&String> = foreign.filter(|path| path.starts_with(char::is_uppercase)).collect();
        assert!(exported.is_empty(), "{module} uses what the crate exports: {exported:?}");
        (module.clone(), used.into_iter().filter(|one| one != module).collect())
    });
    used.collect()
}

/// The module that a path leads into.
fn nearest(path: &str, modules: &BTreeMap<String, PathBuf>) -> Option<String> {
    let mut path = path;
    while !path.is_empty() {
        if modules.contains_key(path) {
            return Some(path.to_owned());
        }
        path = above(path);
    }
    None
}

fn above(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(above, _)| above)
}

/// The paths within the crate that a text has: what follows `crate::`, what follows `super::` put behind `scope`, and, of what only
/// names its children, what it takes from them.
fn paths(text: &str, scope: &str, names_children: bool) -> Vec<String> {
    let mut paths = Vec::new();
    let behind = |path: &str| if scope.is_empty() { path.to_owned() } else { format!("{scope}::{path}") };
    for (begin, _) in text.match_indices("crate::") {
        // Not that of another crate's name.
        if !text[..begin].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            paths.extend(expanded(&text[begin + "crate::".len()..]));
        }
    }
    for (begin, _) in text.match_indices("super::") {
        paths.extend(expanded(&text[begin + "super::".len()..]).iter().map(|path| behind(path)));
    }
    if names_children {
        for (begin, _) in text.match_indices("pub use ") {
            paths.extend(expanded(&text[begin + "pub use ".len()..]).iter().map(|path| behind(path)));
        }
    }
    paths
}

/// The paths that a text begins with: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn expanded(text: &str) -> Vec<String> {
    let is_of_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let end = text.find(|character| !is_of_path(character)).unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    let Some(group) = rest.strip_prefix('{').filter(|_| path.is_empty() || path.ends_with("::")) else {
        return vec![path.trim_end_matches(':').to_owned()];
    };
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0_usize, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let part = group[begin..at].trim();
                let parts = if part.is_empty() { vec![] } else { expanded(part) };
                found.extend(parts.into_iter().map(|part| format!("{path}{part}")));
                begin = at + 1;
                if character == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

fn all_files() -> Vec<PathBuf> {
    let crates =
        ["api", "cache", "codec", "control", "rollout", "routes", "server", "store", "tests", "units"];
    let files: Vec<_> = crates.iter().flat_map(|name| rust_files(&root().join(name))).collect();
    assert!(files.len() > 100, "only {} files were found", files.len());
    files
}

/// The lines of a file that are code of the product: no comments, and nothing from a module of tests on.
fn code_lines(file: &Path) -> Vec<(usize, String)> {
    let inside = file.strip_prefix(root()).unwrap_or(file);
    // A fuzzer's histories are compiled for tests alone, like these.
    let name = inside.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_of_tests = name.ends_with("tests.rs") || name == "fuzz.rs";
    if is_of_tests || inside.components().any(|part| part.as_os_str() == "tests") {
        return vec![];
    }
    let text = read(file);
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].ends_with('{');
    let end = lines.windows(2).position(begins_tests).unwrap_or(lines.len());
    let code = lines.into_iter().take(end).enumerate().map(|(index, line)| (index + 1, line.to_owned()));
    code.filter(|(_, line)| !line.trim_start().starts_with("//")).collect()
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != "node_modules" {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}
