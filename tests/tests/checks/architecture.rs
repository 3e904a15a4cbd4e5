//! The rules of ARCHITECTURE.md and STYLE.md that Cargo and clippy do not check: what a module may use, and what every file has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Code below `path` must not contain `words`, because of `reason`.
struct Rule {
    path: &'static str,
    words: &'static [&'static str],
    reason: &'static str,
}

const RULES: [Rule; 16] = [
    Rule {
        path: "access/src",
        words: &[
            "std::fs",
            "std::env",
            "TcpStream",
            "ToSocketAddrs",
            "Instant::now",
            "SystemTime::now",
            "std::thread",
            "tokio",
            "tonic",
        ],
        reason: "access decides without I/O and without a clock (invariant 1)",
    },
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
        path: "re2/src",
        words: &["std::fs", "std::env", "Instant::now", "SystemTime::now", "std::thread"],
        reason: "expressions are judged without I/O and without a clock (invariant 1)",
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
        path: "relay/src",
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
        reason: "the client of another server is sans-I/O: time and messages are passed in",
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
        path: "explain/src",
        words: &[
            "std::fs",
            "std::process",
            "std::thread",
            "std::time",
            "tokio",
            "tonic",
            "xds_codec",
            "xds_control",
            "xds_routes",
            "RandomState",
        ],
        reason: "an explanation is a function of what is served and of a request; it shares no code with what makes resources",
    },
    Rule {
        path: "api/src",
        words: &["tonic", "xds_server", "xds_session", "std::fs"],
        reason: "the API asks the control (D1), and knows nothing of gRPC (invariant 13)",
    },
    Rule {
        path: "files/src",
        words: &["xds_control::Control", "tokio", "tonic", "axum"],
        reason: "files are a source: they give, and know nobody who takes (D2)",
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
        words: &["crate::grpc", "crate::source", "crate::run", "xds_files", "xds_store", "tonic", "axum"],
        reason: "rollouts are driven through the control and what is known of clients, whoever serves them",
    },
    Rule {
        path: "server/src/grpc",
        words: &["crate::source", "xds_control", "crate::run", "xds_files", "xds_store"],
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

/// Where modules use each other in one direction only.
const ONE_WAY: [&str; 17] = [
    "access/src",
    "api/src",
    "cache/src",
    "cli/src",
    "codec/src",
    "control/src",
    "files/src",
    "oracle/src",
    "re2/src",
    "rollout/src",
    "routes/src",
    "server/session/src",
    "server/src",
    "settings/src",
    "store/src",
    "tests/src",
    "units/src",
];

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

/// `cargo fast` has the tests of all crates but those of `xds-tests`, which start servers.
#[test]
fn the_fast_tests_are_those_of_all_other_crates() {
    let mut cargo = Command::new(env!("CARGO"));
    let asked = cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root()).output();
    let metadata: Value = serde_json::from_slice(&asked.expect("cargo runs").stdout).expect("JSON");
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let others = packages.filter(|package| package["name"] != "xds-tests");
    let targets = others.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    let expected: BTreeSet<_> = tests.filter_map(|test| test["name"].as_str()).collect();
    let config = read(&root().join(".cargo/config.toml"));
    let named: BTreeSet<_> = config
        .split("\"--test\", \"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
        .collect();
    assert_eq!(named, expected);
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
fn modules_use_each_other_in_one_direction() {
    let mut broken = Vec::new();
    let mut n_uses = 0;
    for source in ONE_WAY {
        let mut left = uses(&root().join(source));
        assert!(!left.is_empty(), "{source} has no code; does it have another name now?");
        n_uses += left.values().map(BTreeSet::len).sum::<usize>();
        // A module is in no circle if it uses none of the others that are left, or if none of them uses it.
        loop {
            let names: BTreeSet<String> = left.keys().cloned().collect();
            left.values_mut().for_each(|used| used.retain(|one| names.contains(one)));
            let users: BTreeSet<String> = left.values().flatten().cloned().collect();
            left.retain(|module, used| !used.is_empty() && users.contains(module));
            if left.len() == names.len() {
                break;
            }
        }
        broken.extend(circle(&left).map(|circle| format!("{source}: {}", circle.join(" uses "))));
    }
    assert!(n_uses > 900, "only {n_uses} uses were found");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A circle among modules each of which uses some of the others; it ends where it begins.
fn circle(modules: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<&str>> {
    let mut way = vec![modules.keys().next()?.as_str()];
    loop {
        let next = modules[*way.last()?].first()?;
        let met = way.iter().position(|module| module == next);
        way.push(next);
        if let Some(met) = met {
            return Some(way.split_off(met));
        }
    }
}

/// The modules below a directory, by their paths in the crate, each with the modules that it uses. A name that another module exports
/// counts for the module that defines it. The root of the crate does not count: it names all others.
fn uses(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files = rust_files(source).into_iter().filter(|file| !file.ends_with("main.rs"));
    let modules: BTreeMap<String, Module> = files
        .filter_map(|file| {
            let text: Vec<String> = code_lines(&file).into_iter().map(|(_, line)| line).collect();
            (!text.is_empty()).then(|| (module_name(source, &file), Module::new(&text.join("\n"))))
        })
        .collect();
    let named = modules.iter().filter(|(name, _)| !name.is_empty());
    let used = named.map(|(name, module)| {
        let begins = |path: &&String| {
            let first = path.split("::").next().unwrap_or_default();
            ["crate", "self", "super"].contains(&first) || modules.contains_key(&below(name, first))
        };
        let used = module.paths.iter().filter(begins).map(|path| definer(name, path, &modules));
        (name.clone(), used.filter(|one| !one.is_empty() && one != name).collect())
    });
    used.collect()
}

/// The other modules that a file names.
struct Module {
    /// Every path in it that has more than one name.
    paths: Vec<String>,
    /// Where the names lead to that it exports from elsewhere.
    exports: BTreeMap<String, String>,
}

impl Module {
    fn new(text: &str) -> Self {
        let mut paths = Vec::new();
        for (at, _) in text.match_indices("::") {
            let begin = text[..at].rfind(|character| !is_of_name(character)).map_or(0, |before| before + 1);
            // `pub(in path)` says who may use an item, and uses nothing.
            let is_begin =
                begin < at && !text[..begin].ends_with([':', '$']) && !text[..begin].ends_with("(in ");
            paths.extend(is_begin.then(|| expanded(&text[begin..])).into_iter().flatten());
        }
        let exported = text.match_indices(" use ").filter(|(at, _)| {
            let line = text[..*at].rsplit('\n').next().unwrap_or_default().trim_start();
            line.starts_with("pub")
        });
        let exported = exported.flat_map(|(at, begin)| expanded(&text[at + begin.len()..]));
        let exports = exported.map(|path| (path.rsplit("::").next().unwrap_or_default().to_owned(), path));
        Self { exports: exports.collect(), paths }
    }
}

/// The path of a file's module: that of `a/b.rs` and `a/b/mod.rs` is `a::b`, that of `lib.rs` is empty.
fn module_name(source: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(source).unwrap_or(file).with_extension("");
    let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let name = parts.join("::");
    if name == "lib" { String::new() } else { name.trim_end_matches("::mod").to_owned() }
}

/// The module in which the last name is defined of a path that `module` uses.
fn definer(module: &str, path: &str, modules: &BTreeMap<String, Module>) -> String {
    let mut at = module.to_owned();
    let mut names = path.split("::");
    while let Some(name) = names.next() {
        let next = below(&at, name);
        match name {
            "crate" => at.clear(),
            "self" => {}
            "super" => at = above(&at).to_owned(),
            _ if modules.contains_key(&next) => at = next,
            _ => {
                let export = modules.get(&at).and_then(|module| module.exports.get(name));
                let Some(export) = export.filter(|export| *export != path) else { return at };
                let rest: Vec<&str> = names.collect();
                let whole = [&[&**export][..], &rest].concat().join("::");
                let first = export.split("::").next().unwrap_or_default();
                let is_inside =
                    ["crate", "self", "super"].contains(&first) || modules.contains_key(&below(&at, first));
                return if is_inside { definer(&at, &whole, modules) } else { at };
            }
        }
    }
    at
}

fn above(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(above, _)| above)
}

fn below(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The paths that a text begins with: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn expanded(text: &str) -> Vec<String> {
    let is_of_path = |character: char| is_of_name(character) || character == ':';
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
    let crates = [
        "access", "api", "cache", "cli", "codec", "control", "files", "oracle", "rollout", "routes",
        "server", "settings", "store", "tests", "units",
    ];
    let files: Vec<_> = crates.iter().flat_map(|name| rust_files(&root().join(name))).collect();
    assert!(files.len() > 100, "only {} files were found", files.len());
    files
}

/// The lines of a file that are code of the product: no comments, and nothing that is compiled for tests alone.
fn code_lines(file: &Path) -> Vec<(usize, String)> {
    if is_of_tests(file) {
        return vec![];
    }
    let text = read(file);
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut code = Vec::new();
    while let Some((number, line)) = lines.next() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        if !OF_TESTS.contains(&line.trim()) {
            code.push((number, line.to_owned()));
            continue;
        }
        // As everything is formatted, an item ends in the first line that closes at the depth where it begins.
        let depth = |line: &str| line.len() - line.trim_start().len();
        let is_end = |other: &str| {
            let is_attribute = other.trim_start().starts_with("#[");
            depth(other) == depth(line) && !is_attribute && other.ends_with([';', ',', '}'])
        };
        let _ = lines.by_ref().find(|(_, other)| is_end(other));
    }
    code
}

/// Returns `true` if a file is compiled for tests alone: it is below a crate's `tests`, or the module above declares it so.
fn is_of_tests(file: &Path) -> bool {
    let inside = file.strip_prefix(root()).unwrap_or(file);
    let is_integration = inside.components().skip(1).any(|part| part.as_os_str() == "tests");
    let file = if file.ends_with("mod.rs") { file.parent().unwrap_or(file) } else { file };
    let (Some(directory), Some(name)) = (file.parent(), file.file_stem()) else { return is_integration };
    let above = [directory.with_extension("rs"), directory.join("mod.rs"), directory.join("lib.rs")];
    let declarations = OF_TESTS.iter().flat_map(|attribute| {
        ["", "pub "].map(|public| format!("{attribute}\n{public}mod {};", name.to_string_lossy()))
    });
    let declarations: Vec<String> = declarations.collect();
    let is_of_tests_by = |above: &PathBuf| {
        let text = read(above);
        declarations.iter().any(|one| text.contains(one))
            || (!above.ends_with("lib.rs") && is_of_tests(above))
    };
    is_integration || above.iter().filter(|above| above.is_file() && *above != file).any(is_of_tests_by)
}

/// The attribute of items that are compiled for tests alone.
const OF_TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(any(test, fuzzing))]"];

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
