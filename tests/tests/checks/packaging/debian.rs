//! `[package.metadata.deb]` of the server: what the package is made of exists, and `cargo install` installs the same program.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::server::cli;

use crate::packaging::{read, root, run_if_present};

/// The package of the server as Cargo understands its manifest.
fn package() -> Result<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--locked", "--manifest-path"]);
    let output = cargo.arg(root().join("server/Cargo.toml")).output()?;
    ensure!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    packages.iter().find(|package| package["name"] == "xds-server").cloned().context("no xds-server")
}

/// The assets of the package: from where, to where, with which mode.
fn assets(package: &Value) -> Result<Vec<(String, String, String)>> {
    let list = package["metadata"]["deb"]["assets"].as_array().context("no assets")?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    list.iter().map(|asset| Ok((text(&asset[0])?, text(&asset[1])?, text(&asset[2])?))).collect()
}

/// Where an asset is installed as a file.
fn destination((from, to, _): &(String, String, String)) -> String {
    let name = from.rsplit('/').next().unwrap_or_default();
    if to.ends_with('/') { format!("/{to}{name}") } else { format!("/{to}") }
}

#[test]
fn every_file_of_the_package_exists() -> Result<()> {
    for (from, ..) in assets(&package()?)? {
        let path = root().join("server").join(&from);
        if let Some(directory) = from.strip_suffix("*.json") {
            let found = fs::read_dir(root().join("server").join(directory))?.count();
            ensure!(found > 0, "{from} matches nothing");
        } else {
            ensure!(from == "target/release/xds-server" || path.is_file(), "{from} is missing");
        }
    }
    Ok(())
}

#[test]
fn the_package_installs_what_the_unit_and_the_scripts_name() -> Result<()> {
    let package = package()?;
    let installed: Vec<String> = assets(&package)?.iter().map(destination).collect();
    let unit = read("packaging/systemd/xds-server.service")?;
    for path in ["/usr/bin/xds-server", "/etc/xds-server/config.yaml", "/etc/default/xds-server"] {
        ensure!(
            unit.contains(path) && installed.iter().any(|found| found == path),
            "{path} of {installed:?}"
        );
    }
    let script = read("packaging/debian/postinst")?;
    let users = script.split_whitespace().find(|word| word.starts_with("/usr/lib/sysusers.d/"));
    let users = users.context("the script makes no user")?;
    ensure!(installed.iter().any(|path| path == users), "{users} of {installed:?}");
    // Whatever is below /etc belongs to the administrator: an upgrade must not replace what he has changed.
    let kept = package["metadata"]["deb"]["conf-files"].as_array().context("no conf-files")?;
    for path in installed.iter().filter(|path| path.starts_with("/etc/") && !path.ends_with("README.md")) {
        ensure!(kept.iter().any(|keep| keep == path), "{path} is not kept");
    }
    Ok(())
}

/// The package of a release also has what the program prints of itself, from where the release script puts it.
#[tokio::test]
async fn the_package_of_a_release_has_manual_pages_and_completions() -> Result<()> {
    let package = package()?;
    let release = &package["metadata"]["deb"]["variants"]["release"];
    ensure!(release["name"] == "xds-server", "another name: {release}");
    let added = release["merge-assets"]["append"].as_array().context("no assets")?;
    let from = |asset: &Value| asset[0].as_str().unwrap_or_default().to_owned();
    let script = read("packaging/release.sh")?;
    ensure!(script.contains("--variant release") && script.contains("$SOURCE/packaging/generated"));
    for file in [
        "man/man1/*.1",
        "completions/xds-server.bash",
        "completions/xds-server.zsh",
        "completions/xds-server.fish",
    ] {
        ensure!(
            added.iter().any(|asset| from(asset) == format!("../packaging/generated/{file}")),
            "no {file}"
        );
    }
    let dir = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish"] {
        ensure!(!cli(&["completions", shell]).await?.is_empty(), "{shell}");
    }
    cli(&["man", &dir.path().to_string_lossy()]).await?;
    ensure!(dir.path().join("xds-server.1").is_file());
    Ok(())
}

#[test]
fn the_scripts_of_the_package_are_sound() -> Result<()> {
    for name in fs::read_dir(root().join("packaging/debian"))? {
        let path = name?.path();
        let text = fs::read_to_string(&path)?;
        ensure!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{}", path.display());
        run_if_present(Command::new("shellcheck").arg(&path))?;
    }
    Ok(())
}

/// `cargo install --locked --path server` takes a quarter of an hour, so its conditions are checked instead.
#[test]
fn cargo_install_installs_one_program_with_the_committed_versions() -> Result<()> {
    let package = package()?;
    let targets = package["targets"].as_array().context("no targets")?;
    let is_program = |target: &&Value| target["kind"] == serde_json::json!(["bin"]);
    let programs: Vec<&Value> = targets.iter().filter(is_program).map(|target| &target["name"]).collect();
    ensure!(programs == ["xds-server"], "{programs:?}");
    ensure!(
        package["publish"] == serde_json::json!([]),
        "it is not for crates.io: its crates are found by path"
    );
    ensure!(package["license"] == "Apache-2.0", "{}", package["license"]);
    for field in ["description", "rust_version"] {
        ensure!(package[field].is_string(), "no {field}");
    }
    ensure!(Path::new(&root().join("Cargo.lock")).is_file());
    Ok(())
}
