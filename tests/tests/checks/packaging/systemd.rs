//! `packaging/systemd/`: systemd's own tools find nothing wrong, and the server knows what the files set.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value};
use tempfile::TempDir;
use xds_tests::server::xds_server;

use crate::packaging::flags::Flags;
use crate::packaging::{read, run_if_present};

const UNIT: &str = "packaging/systemd/xds-server.service";
const DROP_IN: &str = "packaging/systemd/credentials.conf";
/// Where the packages install the server.
const BINARY: &str = "/usr/bin/xds-server";
/// Tenths of the exposure that `systemd-analyze security` counts, from 0 to 100. The unit has 14; without a system call filter it has 20.
const MAX_EXPOSURE: &str = "15";

#[tokio::test]
async fn systemd_accepts_the_unit_with_the_drop_in_and_finds_it_hardened() -> Result<()> {
    let dir = TempDir::with_prefix("xds-unit-")?;
    let unit = dir.path().join("xds-server.service");
    // The program must exist, so it is the one under test.
    let server = xds_server().await?;
    let binary = server.as_std().get_program().to_str().context("path")?;
    fs::write(&unit, read(UNIT)?.replace(BINARY, binary))?;
    let drop_ins = dir.path().join("xds-server.service.d");
    fs::create_dir(&drop_ins)?;
    fs::write(
        drop_ins.join("credentials.conf"),
        read(DROP_IN)?.replace("#LoadCredential", "LoadCredential"),
    )?;
    let verify = run_if_present(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit))?;
    let Some(complaints) = verify else { return Ok(()) };
    ensure!(complaints.is_empty(), "{complaints}");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager", "--threshold", MAX_EXPOSURE]).arg(&unit);
    run_if_present(&mut security)?;
    Ok(())
}

#[tokio::test]
async fn the_server_knows_every_flag_variable_and_key_of_the_service() -> Result<()> {
    let flags = Flags::of_serve().await?;
    let unit = read(UNIT)?;
    let start = values(&unit, "ExecStart").next().context("no ExecStart")?;
    flags.check_words(start.strip_prefix(BINARY).context("another program")?.split_whitespace())?;
    let (drop_in, variables) = (read(DROP_IN)?, read("packaging/systemd/xds-server.default")?);
    let set =
        values(&unit, "Environment").chain(values(&drop_in, "Environment")).chain(assignments(&variables));
    for variable in set {
        flags.check_variable(variable.split('=').next().unwrap_or_default())?;
    }
    let config: Map<String, Value> = serde_saphyr::from_str(&read("packaging/systemd/config.yaml")?)?;
    config.keys().try_for_each(|key| flags.check_key(key))
}

#[test]
fn the_service_and_the_user_have_one_name_and_one_directory() -> Result<()> {
    let unit = read(UNIT)?;
    let users = read("packaging/sysusers.d/xds-server.conf")?;
    let user: Vec<&str> =
        users.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    ensure!(values(&unit, "User").eq([user[1]]) && values(&unit, "Group").eq([user[1]]), "{user:?}");
    let state = format!("/var/lib/{}", values(&unit, "StateDirectory").next().context("no StateDirectory")?);
    ensure!(values(&unit, "Environment").any(|set| set == format!("XDS_SERVER_DATA_DIR={state}")));
    ensure!(user.last() == Some(&state.as_str()), "{user:?}");
    Ok(())
}

/// The values of a key of a unit, also those that are commented out as examples.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().map(|line| line.trim_start_matches('#'));
    lines.filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
}

fn assignments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.trim_start_matches('#')).filter(|line| line.starts_with("XDS_SERVER_"))
}
