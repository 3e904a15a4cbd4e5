//! The output for CI systems stays well-formed with any file name and any content.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;
use xds_tests::config::ConfigDir;
use xds_tests::server::xds_server;

/// Names that would end an attribute, a command or a line; the last one is no UTF-8.
const NAMES: [&[u8]; 7] = [
    b"quotes\"'<&>.yaml",
    b"lines\nof\r\ntext.yaml",
    b"::error file=x,line=1::%0A.yaml",
    b"controls\x01\x1b[31m\x7f.yaml",
    "direction\u{202e}\u{2028}\u{fffe}\u{10ffff}.yaml".as_bytes(),
    b"]]>--><!--%25.json",
    b"no-utf-8\xff\xfe.yaml",
];

/// A text whose keys, names and values do the same.
const TEXT: &str = "version: xds-server/v1\nlisteners: {a: {port: 80}}\nroutes:\n  \
    \"</failure>\\u0001\\e[0m]]>\\n::error::x\\uFFFE\": {\"x<\\\"&'\\u2028\": 1, to: \"<b>\\r\\n\"}\n";

/// Prints a line for each test case: its file, and how many failures it has.
const READ_JUNIT: &str = "import sys, xml.etree.ElementTree as tree\n\
    root = tree.fromstring(sys.stdin.buffer.read())\n\
    assert root.tag == 'testsuites' and len(root) == 1\n\
    for case in root[0]: print(ascii(case.get('file')), len(case.findall('failure')), ascii(case.findtext('failure')))\n";

#[tokio::test]
async fn reports_are_well_formed_whatever_files_are_called_and_say() -> Result<()> {
    let dir = ConfigDir::new()?;
    for name in NAMES {
        fs::write(dir.path().join(OsStr::from_bytes(name)), TEXT)?;
    }
    let report = async |form: &str| -> Result<Vec<u8>> {
        let mut command = xds_server().await?;
        let output =
            command.current_dir(dir.path()).args(["validate", ".", "--output", form]).output().await?;
        ensure!(output.status.code() == Some(1), "{form}: {:?}", output.status);
        Ok(output.stdout)
    };

    let junit = dir.path().join("report.xml");
    fs::write(&junit, report("junit").await?)?;
    let mut python = Command::new("python3");
    let output = python.args(["-c", READ_JUNIT]).stdin(fs::File::open(&junit)?).output().await?;
    let cases = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(cases.lines().count() == NAMES.len(), "{cases}");
    ensure!(cases.lines().all(|line| line.split(' ').any(|part| part == "1")), "{cases}");

    let sarif: Value = serde_json::from_slice(&report("sarif").await?)?;
    let results = sarif["runs"][0]["results"].as_array().context("no results")?;
    ensure!(results.len() >= NAMES.len(), "{sarif:#}");
    for result in results {
        let place = &result["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().context("no URI")?;
        ensure!(uri.bytes().all(|one| one.is_ascii_alphanumeric() || b"%-._~/".contains(&one)), "{uri}");
        let line = &place["region"]["startLine"];
        ensure!(line.is_null() || line.as_u64() > Some(0), "{result:#}");
        ensure!(result["message"]["text"].is_string() && result["level"].is_string(), "{result:#}");
    }

    let commands = String::from_utf8(report("github").await?)?;
    let commands: Vec<&str> = commands.split('\n').collect();
    let [found @ .., sums, ""] = commands.as_slice() else { anyhow::bail!("{commands:?}") };
    ensure!(found.len() == results.len() && sums.contains(" errors, "), "{commands:?}");
    for command in found {
        let (properties, _) = command[2..].split_once("::").with_context(|| (*command).to_owned())?;
        let (level, properties) = properties.split_once(' ').with_context(|| (*command).to_owned())?;
        ensure!(["error", "warning", "notice"].contains(&level), "{command}");
        let known = ["file=", "line=", "col=", "title="];
        let is_known = |one: &str| known.iter().any(|name| one.starts_with(name));
        ensure!(properties.split(',').all(is_known), "{command}");
        ensure!(!command.chars().any(char::is_control), "{command:?}");
    }
    Ok(())
}
