//! Files: large texts, links that lead elsewhere, and pipes that block.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use xds_tests::config::{self, ConfigDir};
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::server::{Server, Setup, cli};
use xds_tests::shapes::Shape;
use xds_tests::wait::{PATIENCE, wait_for};

/// The peak of the whole process for each byte of a file. Reading takes at most 20 (`codec/tests/memory.rs`); the rest is what is
/// kept and stored of the resource that is read: its bytes, up to six for each byte of text, its last good copy, and the record
/// in the journal.
const MOST: u64 = 80;

/// The memory that the process takes besides while it loads anything.
const FIXED: u64 = 48 << 20;

/// How many bytes a file has; `XDS_BUDGET_BYTES=9800000` makes them as large as one may be.
fn n_bytes() -> usize {
    std::env::var("XDS_BUDGET_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(500_000)
}

#[tokio::test]
async fn row_7_a_file_takes_memory_in_proportion_to_its_text_however_it_is_shaped() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("good.yaml", &[config::cluster("good")])?;
    let server = Server::start_with(Setup::metered()?.watch(dir.path())).await?;
    let healthy = Healthy::start(&server).await?;
    let meter = Meter::of(&server)?;
    for shape in Shape::ALL {
        for (file, value) in [("f.json", shape.json(n_bytes())), ("g.yaml", shape.yaml(n_bytes(), 10))] {
            let text = if file == "f.json" { in_json(&value) } else { in_yaml(&value) };
            let before = hash_of(&server.get_json("/v1/status/files").await?, file);
            let measurement = meter.begin()?;
            dir.write(file, &text)?;
            let is_read = |files: &Value| hash_of(files, file).is_some_and(|hash| Some(hash) != before);
            server.wait_json("/v1/status/files", is_read).await?;
            let cost = measurement.cost()?;
            println!(
                "{shape:?} {file}: {:.1} × {} bytes; {cost}",
                cost.peak as f64 / text.len() as f64,
                text.len()
            );
            ensure!(cost.peak <= MOST * text.len() as u64 + FIXED, "{shape:?} {file}: {cost}");
        }
    }
    println!("the worst answer to a healthy Envoy: {:?}", healthy.check().await?.worst);
    Ok(())
}

#[tokio::test]
async fn row_7_a_document_with_too_many_values_is_told_with_its_place() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write("many.yaml", &in_yaml(&Shape::Numbers.yaml(100_000, 10)))?;
    dir.write_resources("good.yaml", &[config::cluster("good")])?;
    let path = dir.path().to_string_lossy().into_owned();
    let setup = Setup::metered()?.watch(dir.path()).arg("--max-document-values=1000").arg("--partial-start");
    let server = Server::start_with(setup).await?;
    let files = server.wait_json("/v1/status/files", |files| has_read(files, "many.yaml")).await?;
    let text = files.to_string();
    ensure!(text.contains("too-many-values") && text.contains("--max-document-values"), "{text}");
    // The five objects and the list around them count too.
    ensure!(text.contains("\"line\":1000") || text.contains("\"line\":1001"), "{text}");
    let told = cli(&["validate", "--max-document-values=1000", &path]).await;
    ensure!(format!("{told:?}").contains("too-many-values"), "{told:?}");
    ensure!(!format!("{:?}", cli(&["validate", &path]).await).contains("too-many-values"));
    Ok(())
}

#[tokio::test]
async fn row_10_a_link_out_of_the_watched_directory_shows_nothing_of_its_target() -> Result<()> {
    let outside = ConfigDir::new()?;
    let shadow = outside.write("shadow", "root:$6$not-to-be-shown:19000:0\nbin: *\n")?;
    let dir = ConfigDir::new()?;
    dir.write_resources("good.yaml", &[config::cluster("good")])?;
    let server = Server::start_with(Setup::metered()?.watch(dir.path())).await?;
    symlink(&shadow, dir.path().join("shadow.yaml"))?;
    let files = server.wait_json("/v1/status/files", |files| has_read(files, "shadow.yaml")).await?;
    let text = files.to_string();
    ensure!(text.contains("--follow-symlinks"), "{text}");
    ensure!(!text.contains("not-to-be-shown") && !text.contains("19000"), "{text}");
    wait_for("the link in the log", PATIENCE, async || {
        ensure!(!server.log().containing("--follow-symlinks").is_empty(), "{}", server.log());
        Ok(())
    })
    .await?;
    ensure!(server.log().containing("not-to-be-shown").is_empty(), "{}", server.log());
    // A ConfigMap is links within its directory.
    write_config_map(dir.path(), "..2026_01", "first")?;
    server.wait_json("/v1/status/files", |files| has_objects(files, "mapped.yaml")).await?;

    let setup = Setup::metered()?.watch(dir.path()).arg("--follow-symlinks").arg("--partial-start");
    let server = Server::start_with(setup).await?;
    let files = server.wait_json("/v1/status/files", |files| has_read(files, "shadow.yaml")).await?;
    ensure!(!files.to_string().contains("--follow-symlinks"), "{files}");
    Ok(())
}

#[tokio::test]
async fn row_11_a_pipe_that_takes_the_place_of_a_file_does_not_stop_the_source() -> Result<()> {
    let dir = ConfigDir::new()?;
    // Between the look at the last file and its opening are all the others.
    for n in 0..500 {
        dir.write_resources(&format!("a{n:04}.yaml"), &[config::cluster(&format!("c{n}"))])?;
    }
    dir.write_resources("z.yaml", &[config::cluster("z")])?;
    let server = Server::start_with(Setup::metered()?.watch(dir.path())).await?;
    let at = |name: &str| dir.path().join(name);
    ensure!(Command::new("mkfifo").arg(at(".pipe")).status()?.success(), "mkfifo");
    let good = fs::read(at("z.yaml"))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let swaps = spawn_blocking({
        let (dir, is_over, good) = (dir.path().to_owned(), Arc::clone(&is_over), good.clone());
        move || -> io::Result<()> {
            let at = |name: &str| dir.join(name);
            while !is_over.load(Ordering::Relaxed) {
                fs::write(at(".new"), &good)?;
                fs::rename(at(".new"), at("z.yaml"))?;
                fs::hard_link(at(".pipe"), at(".link"))?;
                fs::rename(at(".link"), at("z.yaml"))?;
            }
            Ok(())
        }
    });
    // A source that hangs answers none of them.
    for _ in 0..40 {
        timeout(Duration::from_millis(500), server.post("/v1/reload", &Value::Null)).await.ok();
    }
    is_over.store(true, Ordering::Relaxed);
    swaps.await??;
    fs::write(at(".new"), &good)?;
    fs::rename(at(".new"), at("z.yaml"))?;
    dir.write_resources("last.yaml", &[config::cluster("last")])?;
    server.wait_json("/v1/status/files", |files| has_objects(files, "last.yaml")).await?;
    Ok(())
}

/// A cluster whose metadata holds the value.
fn in_json(value: &str) -> String {
    format!(
        "{{\"@type\":\"type.googleapis.com/envoy.config.cluster.v3.Cluster\",\"name\":\"f\",\"type\":\"STATIC\",\
         \"metadata\":{{\"filter_metadata\":{{\"m\":{{\"v\":{value}}}}}}}}}"
    )
}

fn in_yaml(value: &str) -> String {
    format!(
        "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: g\ntype: STATIC\nmetadata:\n  \
         filter_metadata:\n    m:\n      v:\n{value}"
    )
}

/// A file in the manner of a mounted ConfigMap.
fn write_config_map(dir: &Path, version: &str, cluster: &str) -> Result<()> {
    fs::create_dir(dir.join(version))?;
    fs::write(dir.join(version).join("mapped.yaml"), config::yaml(&[config::cluster(cluster)])?)?;
    symlink(version, dir.join("..tmp"))?;
    fs::rename(dir.join("..tmp"), dir.join("..data"))?;
    symlink("..data/mapped.yaml", dir.join("mapped.yaml")).context("the visible link")
}

fn status_of<'f>(files: &'f Value, name: &str) -> Option<&'f Value> {
    let files = files["files"].as_array()?;
    files.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with(name)))
}

/// Returns `true` if the file is known, with or without errors.
fn has_read(files: &Value, name: &str) -> bool {
    status_of(files, name).is_some()
}

/// A hash that distinguishes contents of a file.
fn hash_of(files: &Value, name: &str) -> Option<String> {
    status_of(files, name)?["hash"].as_str().map(str::to_owned)
}

fn has_objects(files: &Value, name: &str) -> bool {
    status_of(files, name).is_some_and(|file| file["objects"].as_array().is_some_and(|all| !all.is_empty()))
}
