//! The data directory, and the ports.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command as Blocking;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use xds_tests::config::ConfigDir;
use xds_tests::process::{Process, Signal};
use xds_tests::seen::{plain_cluster, resources, served};
use xds_tests::server::{Server, Setup, xds_server};
use xds_tests::wait::PATIENCE;

#[tokio::test]
async fn a_data_directory_in_use_is_refused_with_the_holder() -> Result<()> {
    let setup = Setup::new()?;
    let server = Server::start_with(setup.clone()).await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 1)])).await?;
    let holder = server.id().context("the server runs")?;
    let mut second = setup.spawn().await?;
    let status = second.wait_exit(PATIENCE).await?;
    assert_eq!(status.code(), Some(1), "{}", second.log());
    let told = second.log().containing(&format!("is in use by process {holder}"));
    assert!(told.iter().any(|line| line.contains(&*setup.data_dir().to_string_lossy())), "{}", second.log());
    assert_eq!(served(&server).await?.len(), 1, "the first one suffered");
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 2)])).await?;
    Ok(())
}

#[tokio::test]
async fn a_port_in_use_is_refused_with_flag_and_address() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    for (flag, taken, other) in
        [("--xds-listen", server.xds(), "--admin-listen"), ("--admin-listen", server.admin(), "--xds-listen")]
    {
        let data_dir = TempDir::new()?;
        let (status, log) =
            end_of(data_dir.path(), &[flag, &taken.to_string(), other, "127.0.0.1:0"]).await?;
        assert_eq!(status, Some(1), "{log}");
        assert!(log.contains(flag) && log.contains(&taken.to_string()) && log.contains("in use"), "{log}");
    }
    server.wait_ready().await
}

#[tokio::test]
async fn a_full_disk_refuses_the_write_and_loses_nothing() -> Result<()> {
    let Some(disk) = SmallDisk::mount()? else {
        println!("{SKIPPED}");
        return Ok(());
    };
    let mut server = Started::start(disk.path()).await?;
    let big = "x".repeat(40_000);
    let mut n_acknowledged = 0;
    let refused = loop {
        let mut cluster = plain_cluster(&format!("c{n_acknowledged}"), 1);
        cluster["alt_stat_name"] = json!(format!("{n_acknowledged}{big}"));
        let path = format!("/v1/groups/default/resources/clusters/c{n_acknowledged}");
        let answer = server.request("PUT", &path, &cluster.to_string()).await?;
        if answer.status != StatusCode::OK {
            break answer;
        }
        n_acknowledged += 1;
        ensure!(n_acknowledged < 100, "a disk of 1 MiB took 4 MB");
    };
    assert!(n_acknowledged > 3, "{}", refused.text());
    assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE, "{}", refused.text());
    assert!(refused.text().contains("No space left on device"), "{}", refused.text());
    let health = server.request("GET", "/readyz", "").await?.text();
    assert!(health.contains("changes cannot be stored") && health.contains("the disk is full"), "{health}");
    let snapshot = "/v1/groups/default/snapshot";
    assert_eq!(
        server.n_served(snapshot).await?,
        n_acknowledged,
        "what was refused is served, or something is lost"
    );

    // With room again, a new start has all data and takes writes.
    server.kill().await?;
    disk.grow()?;
    let server = Started::start(disk.path()).await?;
    assert_eq!(server.n_served(snapshot).await?, n_acknowledged);
    let path = "/v1/groups/default/resources/clusters/new";
    let answer = server.request("PUT", path, &plain_cluster("new", 1).to_string()).await?;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    Ok(())
}

#[tokio::test]
async fn a_read_only_data_directory_is_refused_with_advice() -> Result<()> {
    let Some(disk) = SmallDisk::mount()? else {
        println!("{SKIPPED}");
        return Ok(());
    };
    disk.remount("ro")?;
    let listen = ["--xds-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let (status, log) = end_of(disk.path(), &listen).await?;
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains(&*disk.path().to_string_lossy()) && log.contains("mount it writable"), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_data_directory_that_is_a_file_is_refused() -> Result<()> {
    let dir = TempDir::new()?;
    let file = dir.path().join("file");
    fs::write(&file, "")?;
    let listen = ["--xds-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let (status, log) = end_of(&file, &listen).await?;
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains(&*file.to_string_lossy()), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_mark_of_garbage_begins_anew_and_nothing_is_lost() -> Result<()> {
    let setup = Setup::new()?;
    let mut server = Server::start_with(setup.clone()).await?;
    write_some(&server).await?;
    let (before, history) = (served(&server).await?, server.get_json("/v1/history").await?);
    server.kill().await?;
    let db = setup.data_dir().join("acknowledged/db");
    let length = fs::metadata(&db)?.len();
    OpenOptions::new().write(true).open(&db)?.write_all_at(&vec![0xa5; usize::try_from(length)?], 0)?;
    fs::write(setup.data_dir().join("acknowledged/conf"), "garbage")?;

    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    assert_eq!(served(&server).await?, before);
    assert_eq!(server.get_json("/v1/history").await?, history);
    assert!(!server.log().containing("the store was opened with a remark").is_empty(), "{}", server.log());
    Ok(())
}

#[tokio::test]
async fn a_flipped_bit_in_the_journal_is_never_served() -> Result<()> {
    let setup = Setup::new()?;
    let mut server = Server::start_with(setup.clone()).await?;
    write_some(&server).await?;
    let before = served(&server).await?;
    server.kill().await?;
    let journal = journal(setup.data_dir())?;
    let good = fs::read(&journal)?;
    // In the header, in the middle of what was acknowledged, and in the last record.
    for at in [4, good.len() / 2, good.len() - 20] {
        let mut bad = good.clone();
        *bad.get_mut(at).context("offset")? ^= 0x10;
        fs::write(&journal, &bad)?;
        let mut process = setup.spawn().await?;
        let refused = process.wait_line("an end", PATIENCE, |line| line.contains("listening").then_some(()));
        let is_refused = refused.await.is_err();
        if is_refused {
            let status = process.wait_exit(PATIENCE).await?;
            assert_eq!(status.code(), Some(1), "{}", process.log());
            // What was marked as acknowledged is missed; the rest is damaged or cut.
            let mut told = process.log().containing("damaged");
            told.extend(process.log().containing("was acknowledged"));
            let name = journal.to_string_lossy();
            assert!(told.iter().any(|line| line.contains(&*name)), "byte {at}: {}", process.log());
        } else {
            let log = process.log();
            process.signal(Signal::KILL)?;
            process.wait_exit(PATIENCE).await?;
            let mut server = Server::start_with(setup.clone()).await?;
            // All that is there was written; a last record that is half is cut, loudly.
            let after = served(&server).await?;
            assert!(after.iter().all(|(key, version)| before.get(key) == Some(version)), "byte {at}");
            assert!(!log.containing("WARN").is_empty(), "byte {at}: {log}");
            server.kill().await?;
        }
        assert!(fs::read_dir(setup.data_dir())?.count() > 1);
    }
    // With a copy, nothing is lost.
    fs::remove_dir_all(setup.data_dir().join("acknowledged"))?;
    for file in fs::read_dir(setup.data_dir())? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(file)?;
        }
    }
    fs::write(&journal, &good)?;
    let server = Server::start_with(setup).await?;
    assert_eq!(served(&server).await?, before);
    Ok(())
}

#[tokio::test]
async fn a_last_good_copy_of_garbage_is_not_served() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 1)])?;
    let setup = Setup::new()?.watch(dir.path());
    let mut server = Server::start_with(setup.clone()).await?;
    server.wait_ready().await?;
    let before = served(&server).await?;
    server.kill().await?;
    for copy in fs::read_dir(setup.data_dir().join("last-good"))? {
        fs::write(copy?.path(), "resources: garbage")?;
    }
    // The file itself is good: the copy does not matter.
    server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    assert_eq!(served(&server).await?, before);
    Ok(())
}

async fn write_some(server: &Server) -> Result<()> {
    for n in 1..=5 {
        let path = format!("/v1/groups/default/resources/clusters/c{n}");
        server.put(&path, &plain_cluster(&format!("c{n}"), n)).await?;
    }
    Ok(())
}

fn journal(data_dir: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(data_dir)?.collect::<Result<Vec<_>, _>>()?;
    let paths = files.into_iter().map(|file| file.path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "log")).max().context("a journal")
}

/// Runs a server that cannot start to its end: exit code and log.
async fn end_of(data_dir: &Path, args: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = xds_server().await?;
    command.arg("serve").args(args).arg("--data-dir").arg(data_dir);
    let mut process = Process::spawn("xds-server", &mut command)?;
    let status = process.wait_exit(PATIENCE).await?;
    Ok((status.code(), process.log().to_string()))
}

/// The note where a file system cannot be mounted.
const SKIPPED: &str =
    "skipped: this user may not mount; store/src/fault_tests.rs has the same with failing calls";

/// A server on a data directory of the test's own.
struct Started {
    process: Process,
    admin: String,
}

impl Started {
    async fn start(data_dir: &Path) -> Result<Self> {
        let mut command = xds_server().await?;
        command.args(["serve", "--xds-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--log-format", "json", "--data-dir"]).arg(data_dir);
        let mut process = Process::spawn("xds-server", &mut command)?;
        let admin = process.wait_line("the admin port", PATIENCE, |line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            (line["service"] == "admin").then(|| line["addr"].as_str().map(str::to_owned))?
        });
        let admin = admin.await?;
        Ok(Self { process, admin })
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> Result<xds_tests::http::Answer> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.admin))
            .header("content-type", "application/json")
            .body(http_body_util::Full::from(body.to_owned()))?;
        xds_tests::http::Http::new().send(request).await
    }

    async fn n_served(&self, snapshot: &str) -> Result<usize> {
        let answer = self.request("GET", snapshot, "").await?.success()?.json()?;
        Ok(xds_tests::seen::versions(&answer)?.len())
    }

    async fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait_exit(PATIENCE).await.map(drop)
    }
}

/// A file system of 1 MiB in memory, unmounted when it is dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// `None` if this user may not mount.
    fn mount() -> Result<Option<Self>> {
        let disk = Self { dir: TempDir::with_prefix("xds-disk-")? };
        let mut mount = Blocking::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "xds-tests"]).arg(disk.path());
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Ok(Some(disk));
        }
        Ok(None)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn grow(&self) -> Result<()> {
        self.remount("size=64m")
    }

    fn remount(&self, option: &str) -> Result<()> {
        let mut mount = Blocking::new("mount");
        let status = mount.args(["-o", &format!("remount,{option}")]).arg(self.path()).status()?;
        ensure!(status.success(), "remount,{option}");
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Fails where nothing was mounted.
        let _ = Blocking::new("umount").arg("-l").arg(self.path()).output();
    }
}
