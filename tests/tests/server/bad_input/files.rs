//! Files and directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::time::{Instant, interval};
use xds_tests::config::{CLUSTER, ConfigDir};
use xds_tests::raw::{self, DeltaStream, path};
use xds_tests::seen::{delta_names, plain_cluster, resources, served};
use xds_tests::server::{Server, Setup};
use xds_tests::wait::PATIENCE;

/// A file, its fate, and its diagnostics.
pub(crate) struct Case {
    file: &'static str,
    breaks: fn(&Path) -> Result<()>,
    code: &'static str,
    place: Option<(u64, u64)>,
    detail: &'static str,
    suggestion: Option<&'static str>,
}

impl Case {
    /// Writes the file as something good, and breaks it.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let file = dir.join(self.file);
        fs::write(&file, resources(&[plain_cluster(name_of(self), 1)]).to_string())?;
        (self.breaks)(&file)
    }
}

pub(crate) const CASES: [Case; 13] = [
    Case {
        file: "malformed.yaml",
        breaks: |file| Ok(fs::write(file, "resources:\n- name: [\n")?),
        code: "syntax",
        place: Some((2, 9)),
        detail: "unclosed bracket '['",
        suggestion: None,
    },
    Case {
        file: "malformed_json.json",
        breaks: |file| Ok(fs::write(file, "{\"resources\": [\n  {\"name\": \"a\",}\n]}\n")?),
        code: "syntax",
        place: Some((2, 16)),
        detail: "expected a key in double quotes, found '}'",
        suggestion: None,
    },
    Case {
        file: "unknown_field.yaml",
        breaks: |file| write_cluster(file, "  conect_timeout: 2s\n"),
        code: "unknown-field",
        place: Some((4, 3)),
        detail: "conect_timeout: unknown field in envoy.config.cluster.v3.Cluster",
        suggestion: Some("connect_timeout"),
    },
    Case {
        file: "wrong_type.yaml",
        breaks: |file| write_cluster(file, "  connect_timeout: [1]\n"),
        code: "",
        place: Some((4, 20)),
        detail: "connect_timeout",
        suggestion: None,
    },
    Case {
        file: "unknown_type.yaml",
        breaks: |file| {
            let text =
                format!("resources:\n- \"@type\": {}\n  name: x\n", CLUSTER.replace("Cluster", "Clutser"));
            Ok(fs::write(file, text)?)
        },
        code: "unknown-type",
        place: Some((2, 12)),
        detail: "@type: unknown type \"type.googleapis.com/envoy.config.cluster.v3.Clutser\"",
        suggestion: Some(CLUSTER),
    },
    Case {
        file: "duplicate_key.yaml",
        breaks: |file| write_cluster(file, "  connect_timeout: 2s\n  connect_timeout: 3s\n"),
        code: "duplicate-key",
        place: Some((5, 3)),
        detail: "the key \"connect_timeout\" appears twice",
        suggestion: None,
    },
    Case {
        file: "empty.yaml",
        breaks: |file| Ok(fs::write(file, "")?),
        code: "empty-file",
        place: Some((1, 1)),
        detail: "the file is empty; delete it to remove its resources",
        suggestion: None,
    },
    Case {
        file: "truncated.yaml",
        breaks: |file| write_cluster(file, "  connect_tim"),
        code: "syntax",
        place: Some((4, 3)),
        detail: "simple key expected ':'",
        suggestion: None,
    },
    Case {
        file: "large.yaml",
        breaks: |file| Ok(fs::write(file, "#".repeat(50_000_000))?),
        code: "file-too-large",
        place: None,
        detail: "the file has 50000000 bytes, the limit is 10485760 bytes (--max-file-bytes)",
        suggestion: None,
    },
    Case {
        file: "dangling.yaml",
        breaks: |file| replace_by_link(file, "nowhere"),
        code: "unreadable-path",
        place: None,
        detail: "the link leads to nowhere, and nothing is there",
        suggestion: None,
    },
    Case {
        file: "loop.yaml",
        breaks: |file| replace_by_link(file, "loop.yaml"),
        code: "unreadable-path",
        place: None,
        detail: "",
        suggestion: None,
    },
    Case {
        file: "fifo.yaml",
        breaks: |file| {
            fs::remove_file(file)?;
            ensure!(Command::new("mkfifo").arg(file).status()?.success(), "mkfifo");
            Ok(())
        },
        code: "unreadable-path",
        place: None,
        detail: "not a regular file",
        suggestion: None,
    },
    Case {
        file: "binary.yaml",
        breaks: |file| Ok(fs::write(file, [0xff, 0xfe, 0x00, 0x80])?),
        code: "",
        place: None,
        detail: "",
        suggestion: None,
    },
];

#[tokio::test]
async fn a_broken_file_is_told_with_its_place_and_keeps_its_last_good_contents() -> Result<()> {
    let dir = ConfigDir::new()?;
    for case in &CASES {
        // JSON is YAML.
        dir.write(case.file, &resources(&[plain_cluster(name_of(case), 1)]).to_string())?;
    }
    dir.write_resources("good.yaml", &[plain_cluster("good", 1)])?;
    // A directory may be named like a file.
    fs::create_dir(dir.path().join("directory.yaml"))?;
    let mut server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let before = served(&server).await?;
    ensure!(before.len() == CASES.len() + 1, "{before:?}");

    for case in &CASES {
        (case.breaks)(&dir.path().join(case.file)).context(case.file)?;
    }
    let status = all_are_told(&server).await?;
    for case in &CASES {
        check_diagnostic(case, &status)?;
    }
    assert_eq!(served(&server).await?, before, "something was lost");

    // The others go on.
    dir.write_resources("good.yaml", &[plain_cluster("good", 2)])?;
    wait_version_changes(&server, "Cluster/good", &before["Cluster/good"]).await?;
    let after = served(&server).await?;

    // Also across a restart, which is ready at once: everything has last good contents.
    server.restart().await?;
    server.wait_ready().await?;
    let status = all_are_told(&server).await?;
    for case in &CASES {
        check_diagnostic(case, &status)?;
    }
    assert_eq!(served(&server).await?, after, "something was lost in the restart");
    let problems = server.get_json("/readyz").await?["problems"].to_string();
    assert!(problems.contains("malformed.yaml"), "readiness does not name what is wrong: {problems}");

    for case in &CASES {
        fs::remove_file(dir.path().join(case.file))?;
        dir.write(case.file, &resources(&[plain_cluster(name_of(case), 3)]).to_string())?;
    }
    for case in &CASES {
        let name = format!("Cluster/{}", name_of(case));
        wait_version_changes(&server, &name, &before[&name]).await?;
    }
    server.wait_json("/v1/status/files", |status| n_broken(status) == 0).await?;
    Ok(())
}

#[tokio::test]
async fn a_file_without_read_permission_keeps_its_last_good_contents() -> Result<()> {
    let dir = ConfigDir::new()?;
    let file = dir.write_resources("a.yaml", &[plain_cluster("a", 1)])?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000))?;
    if fs::read(&file).is_ok() {
        println!("skipped: this user may read everything; loop.yaml above is a file that nobody can read");
        return Ok(());
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let before = served(&server).await?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000))?;
    let told = |status: &Value| status.to_string().contains("permission");
    server.wait_json("/v1/status/files", told).await?;
    assert_eq!(served(&server).await?, before);
    Ok(())
}

#[tokio::test]
async fn a_watched_directory_that_vanishes_keeps_its_last_good_state_and_may_come_back() -> Result<()> {
    let dir = ConfigDir::new()?;
    let root = dir.path().join("root");
    fs::create_dir(&root)?;
    dir.write_resources("root/a.yaml", &[plain_cluster("a", 1)])?;
    let setup = Setup::new()?.watch(&root).arg("--poll-interval").arg("500ms");
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let before = served(&server).await?;

    fs::rename(&root, dir.path().join("away"))?;
    let told = |status: &Value| status.to_string().contains("no such");
    server.wait_json("/v1/status/files", told).await?;
    assert_eq!(served(&server).await?, before);
    server.restart().await?;
    server.wait_ready().await?;
    assert_eq!(served(&server).await?, before, "lost in the restart");

    fs::rename(dir.path().join("away"), &root)?;
    dir.write_resources("root/a.yaml", &[plain_cluster("a", 2)])?;
    wait_version_changes(&server, "Cluster/a", &before["Cluster/a"]).await?;
    // Now that the directory is there, its file can be deleted for good.
    dir.remove("root/a.yaml")?;
    server
        .wait_json("/v1/groups/default/snapshot", |snapshot| !snapshot.to_string().contains("\"a\""))
        .await?;
    Ok(())
}

/// One of the tests that wait for real time: what is tested is that a slow change is one change.
#[tokio::test]
async fn a_git_pull_that_takes_three_seconds_removes_nothing_in_between() -> Result<()> {
    const N_FILES: usize = 15;
    let dir = ConfigDir::new()?;
    for i in 0..N_FILES {
        dir.write_resources(&format!("old-{i}.yaml"), &[plain_cluster(&format!("c{i}"), 1)])?;
    }
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let node = raw::node("n", "c");
    let mut stream = DeltaStream::open(raw::connect(server.xds()).await?, path::ADS_DELTA, node);
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    assert_eq!(first.resources.len(), N_FILES);
    stream.ack(&first).await?;

    // All files go, one after the other, and come back under other names.
    let started = Instant::now();
    let mut ticks = interval(Duration::from_millis(100));
    for i in 0..N_FILES {
        ticks.tick().await;
        dir.remove(&format!("old-{i}.yaml"))?;
    }
    for i in 0..N_FILES {
        ticks.tick().await;
        dir.write_resources(&format!("new-{i}.yaml"), &[plain_cluster(&format!("c{i}"), 1)])?;
    }
    ensure!(started.elapsed() > Duration::from_millis(2800), "too fast to prove anything");
    dir.write_resources("end.yaml", &[plain_cluster("end", 1)])?;
    let next = stream.expect_type(CLUSTER).await?;
    assert_eq!((delta_names(&next), next.removed_resources), (vec!["end".to_owned()], vec![]));
    Ok(())
}

fn write_cluster(file: &Path, rest: &str) -> Result<()> {
    let name = file.file_stem().and_then(|stem| stem.to_str()).context("name")?;
    Ok(fs::write(file, format!("resources:\n- \"@type\": {CLUSTER}\n  name: {name}\n{rest}"))?)
}

fn replace_by_link(file: &Path, target: &str) -> Result<()> {
    fs::remove_file(file)?;
    Ok(symlink(target, file)?)
}

fn name_of(case: &Case) -> &'static str {
    case.file.split('.').next().unwrap_or_default()
}

/// Waits until all broken files are reported.
async fn all_are_told(server: &Server) -> Result<Value> {
    server.wait_json("/v1/status/files", |status| n_broken(status) == CASES.len()).await
}

fn n_broken(status: &Value) -> usize {
    let files = status["files"].as_array();
    files.into_iter().flatten().filter(|file| file["diagnostics"] != serde_json::json!([])).count()
}

fn check_diagnostic(case: &Case, status: &Value) -> Result<()> {
    let ends = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with(case.file));
    let files = status["files"].as_array().context("files")?;
    let file = files.iter().find(ends).with_context(|| format!("{} is not listed: {status}", case.file))?;
    let told = &file["diagnostics"][0];
    let place = told["line"].as_u64().zip(told["column"].as_u64());
    let is_right = told["file"].as_str().is_some_and(|name| name.ends_with(case.file))
        && told["severity"] == "error"
        && (case.code.is_empty() || told["code"] == case.code)
        && (case.place.is_none() || place == case.place)
        && told["detail"].as_str().is_some_and(|detail| detail.starts_with(case.detail))
        && told["suggestion"].as_str() == case.suggestion;
    ensure!(is_right, "{}: {file:#}", case.file);
    Ok(())
}

async fn wait_version_changes(server: &Server, key: &str, old: &str) -> Result<()> {
    xds_tests::wait::wait_for(key, PATIENCE, async || {
        let served = served(server).await?;
        ensure!(served.get(key).is_some_and(|version| version != old), "{served:?}");
        Ok(())
    })
    .await
}
