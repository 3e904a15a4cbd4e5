//! `packaging/release.sh`: it refuses what must not become a release. What it builds takes half an hour and is not built here.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::packaging::{read, root, run_if_present};

const SCRIPT: &str = "packaging/release.sh";

/// A repository with the files that the script looks at, in which everything is as a release needs it.
struct Repository {
    dir: TempDir,
    version: String,
}

impl Repository {
    fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("xds-release-")?;
        for file in [
            SCRIPT,
            "Cargo.toml",
            "packaging/kubernetes/single/kustomization.yaml",
            "packaging/kubernetes/replicas/kustomization.yaml",
        ] {
            let to = dir.path().join(file);
            fs::create_dir_all(to.parent().context("parent")?)?;
            fs::copy(root().join(file), to)?;
        }
        let version = version()?;
        let repository = Self { dir, version };
        repository
            .write("CHANGELOG.md", &format!("# Changelog\n\n## [{}] - 2026-12-01\n", repository.version))?;
        repository.git(&["init", "--quiet"])?;
        repository.commit()?;
        Ok(repository)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.dir.path().join(file), text).with_context(|| file.to_owned())
    }

    fn commit(&self) -> Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&[
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@localhost",
            "commit",
            "--quiet",
            "--message=test",
        ])
    }

    fn git(&self, args: &[&str]) -> Result<()> {
        let output = Command::new("git").current_dir(self.dir.path()).args(args).output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    }

    fn check(&self, version: &str) -> Result<Output> {
        let mut script = Command::new("bash");
        script.arg(Path::new(SCRIPT)).args(["--check", version]).current_dir(self.dir.path());
        Ok(script.output()?)
    }

    fn ensure_refused(&self, version: &str, why: &str) -> Result<()> {
        let output = self.check(version)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1) && said.contains(why), "expected {why:?}: {output:?}");
        Ok(())
    }
}

/// The version in the manifest.
fn version() -> Result<String> {
    let manifest = read("Cargo.toml")?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \"")).context("no version")?;
    Ok(line.trim_end_matches('"').to_owned())
}

#[test]
fn a_clean_commit_with_a_heading_may_become_a_release() -> Result<()> {
    let repository = Repository::new()?;
    let output = repository.check(&repository.version)?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

#[test]
fn a_dirty_tree_another_version_and_a_missing_heading_are_refused() -> Result<()> {
    let repository = Repository::new()?;
    let version = repository.version.clone();
    repository.ensure_refused("1.0", "not a semantic version")?;
    repository.ensure_refused("99.0.0", "Cargo.toml has the version")?;
    repository.write("left-over", "")?;
    repository.ensure_refused(&version, "dirty")?;
    fs::remove_file(repository.dir.path().join("left-over"))?;
    for heading in
        [format!("[{version}] - unreleased"), "Unreleased".to_owned(), format!("[{version}0] - 2026-12-01")]
    {
        repository.write("CHANGELOG.md", &format!("# Changelog\n\n## {heading}\n"))?;
        repository.commit()?;
        repository.ensure_refused(&version, "CHANGELOG.md has no heading")?;
    }
    Ok(())
}

#[test]
fn manifests_that_name_another_version_are_refused() -> Result<()> {
    let repository = Repository::new()?;
    let version = repository.version.clone();
    let file = "packaging/kubernetes/single/kustomization.yaml";
    repository.write(file, &read(file)?.replace(&version, "99.0.0"))?;
    repository.commit()?;
    repository.ensure_refused(&version, "names another version")
}

#[test]
fn the_script_is_sound() -> Result<()> {
    run_if_present(Command::new("bash").arg("-n").arg(root().join(SCRIPT)))?;
    run_if_present(Command::new("shellcheck").arg(root().join(SCRIPT)))?;
    Ok(())
}
