//! A damaged data directory: the server refuses it if a loss is proved, and the repair first shows what would be lost.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;
use xds_tests::seen::{plain_cluster, served};
use xds_tests::server::{Server, Setup, xds_server};
use xds_tests::wait::PATIENCE;

#[tokio::test]
async fn a_bit_flipped_in_the_last_batch_is_refused_and_salvage_says_what_is_lost() -> Result<()> {
    let setup = Setup::new()?;
    let mut server = Server::start_with(setup.clone()).await?;
    let mut before = Value::Null;
    for n in 1..=3 {
        before = server.get_json("/v1/groups/default/snapshot").await.unwrap_or_default();
        let path = format!("/v1/groups/default/resources/clusters/c{n}");
        server.put(&path, &plain_cluster(&format!("c{n}"), n)).await?;
    }
    let head =
        server.get_json("/v1/history").await?["revisions"][0]["revision"].as_u64().context("a head")?;
    server.stop().await?;
    let journal = journal(setup.data_dir())?;
    let good = fs::read(&journal)?;
    let mut bad = good.clone();
    let last = bad.len() - 20;
    *bad.get_mut(last).context("offset")? ^= 0x10;
    fs::write(&journal, &bad)?;

    // The revision is marked as acknowledged, so the server does not go on without it.
    let mut refused = setup.spawn().await?;
    let status = refused.wait_exit(PATIENCE).await?;
    assert_eq!(status.code(), Some(1), "{}", refused.log());
    let told = format!("revision {head} was acknowledged");
    assert!(!refused.log().containing(&told).is_empty(), "{}", refused.log());
    assert!(!refused.log().containing("store salvage").is_empty(), "{}", refused.log());
    assert_eq!(fs::read(&journal)?, bad);

    let (code, text) = salvage(setup.data_dir(), &[]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("revision {head} is lost")), "{text}");
    assert!(text.contains("nothing was changed"), "{text}");
    assert_eq!(fs::read(&journal)?, bad);
    let (code, text) = salvage(setup.data_dir(), &["--yes"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let aside = PathBuf::from(format!("{}.damaged-1", journal.display()));
    assert_eq!(fs::read(aside)?, bad, "{text}");
    let (code, text) = salvage(setup.data_dir(), &[]).await?;
    assert_eq!((code, text.contains("nothing is damaged")), (Some(0), true), "{text}");

    let mut server = Server::start_with(setup.clone()).await?;
    assert_eq!(server.get_json("/v1/groups/default/snapshot").await?["resources"], before["resources"]);
    let (code, text) = salvage(setup.data_dir(), &["--yes"]).await?;
    assert_eq!((code, text.contains("in use by process")), (Some(1), true), "{text}");
    server.put("/v1/groups/default/resources/clusters/c3", &plain_cluster("c3", 3)).await?;
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_journal_of_a_newer_version_is_named_as_such_and_not_touched() -> Result<()> {
    let setup = Setup::new()?;
    let mut server = Server::start_with(setup.clone()).await?;
    server.put("/v1/groups/default/resources/clusters/c", &plain_cluster("c", 1)).await?;
    server.stop().await?;
    let journal = journal(setup.data_dir())?;
    let good = fs::read(&journal)?;
    // The format's digit, and the checksum of a header with it.
    let mut newer = good.clone();
    *newer.get_mut(7).context("the digit")? = b'2';
    let checksum = crc32c::crc32c(newer.get(..32).context("a header")?);
    newer.get_mut(32..36).context("the checksum")?.copy_from_slice(&checksum.to_le_bytes());
    fs::write(&journal, &newer)?;
    let mut refused = setup.spawn().await?;
    let status = refused.wait_exit(PATIENCE).await?;
    assert_eq!(status.code(), Some(1), "{}", refused.log());
    assert!(!refused.log().containing("written by a newer version").is_empty(), "{}", refused.log());
    assert!(refused.log().containing("damaged").is_empty(), "{}", refused.log());
    let (code, text) = salvage(setup.data_dir(), &["--yes"]).await?;
    assert_eq!((code, text.contains("written by a newer version")), (Some(1), true), "{text}");
    assert_eq!(fs::read(&journal)?, newer);

    fs::write(&journal, &good)?;
    let server = Server::start_with(setup).await?;
    assert_eq!(served(&server).await?.len(), 1);
    Ok(())
}

/// Exit code and everything that was printed.
async fn salvage(data_dir: &Path, args: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command: Command = xds_server().await?;
    command.args(["store", "salvage", "--data-dir"]).arg(data_dir).args(args);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.context("salvage does not end")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout) + &text(&output.stderr)))
}

fn journal(data_dir: &Path) -> Result<PathBuf> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(data_dir)? {
        let path = entry?.path();
        journals.extend(path.extension().is_some_and(|extension| extension == "log").then_some(path));
    }
    ensure!(journals.len() == 1, "{journals:?}");
    journals.pop().context("a journal")
}
