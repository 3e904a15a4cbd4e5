//! The Dockerfile and the compose files: the image has one static binary, belongs to nobody, and is run read-only.
//!
//! `tests/tests/server/image.rs` runs the image's command and health check with the binary under test.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::packaging::read;

#[test]
fn the_image_starts_from_nothing_and_runs_as_nobody() -> Result<()> {
    let text = read("Dockerfile")?;
    let last = text.rfind("\nFROM ").context("no FROM")?;
    let (build, image) = text.split_at(last);
    ensure!(image.starts_with("\nFROM scratch\n"), "{image}");
    // The image has no libraries, so the binary must need none: that is what Rust builds on Alpine.
    let base = build.lines().find_map(|line| line.strip_prefix("FROM ")).context("no FROM")?;
    ensure!(base.starts_with("rust:") && base.contains("-alpine "), "{base}");
    ensure!(image.lines().any(|line| line == "USER 65534:65534"), "the user is a number, and not root's");
    ensure!(!image.lines().any(|line| line.starts_with("RUN ")), "there is nothing to run it with");
    let user_at = image.find("\nUSER ").context("no USER")?;
    ensure!(user_at < image.find("\nENTRYPOINT ").context("no ENTRYPOINT")?);
    Ok(())
}

#[test]
fn what_nobody_writes_to_is_a_volume_of_nobody() -> Result<()> {
    let text = read("Dockerfile")?;
    let volume = text.lines().find_map(|line| line.strip_prefix("VOLUME ")).context("no VOLUME")?;
    ensure!(text.contains(&format!("--chown=65534:65534 /empty {volume}\n")), "{volume} belongs to root");
    ensure!(text.contains(&format!("XDS_SERVER_DATA_DIR={volume}\n")), "{volume} is not the data directory");
    Ok(())
}

#[test]
fn the_release_of_rust_is_new_enough() -> Result<()> {
    let (dockerfile, manifest) = (read("Dockerfile")?, read("Cargo.toml")?);
    let minor = |text: &str, before: &str| -> Option<u32> {
        let rest = text.split_once(before)?.1;
        rest.split(|at: char| !at.is_ascii_digit()).next()?.parse().ok()
    };
    let (image, least) = (minor(&dockerfile, "FROM rust:1."), minor(&manifest, "rust-version = \"1."));
    ensure!(image.is_some() && image >= least, "{image:?} < {least:?}");
    Ok(())
}

#[test]
fn compose_runs_the_server_read_only_and_without_capabilities() -> Result<()> {
    for file in ["docker-compose.yml", "docker-compose.replicas.yml"] {
        let compose: Value = serde_saphyr::from_str(&read(file)?)?;
        let services = compose["services"].as_object().context("no services")?;
        let built: Vec<_> = services.iter().filter(|(_, service)| service["build"] == ".").collect();
        ensure!(!built.is_empty(), "{file} runs no server");
        for (name, service) in built {
            ensure!(
                service["read_only"] == true && service["cap_drop"] == serde_json::json!(["ALL"]),
                "{name} in {file}"
            );
            ensure!(
                service["security_opt"] == serde_json::json!(["no-new-privileges:true"]),
                "{name} in {file}"
            );
        }
    }
    Ok(())
}
