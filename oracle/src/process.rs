//! Runs an Envoy that only checks its bootstrap.

use std::fs::OpenOptions;
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// An Envoy's answer.
#[derive(Debug)]
pub(super) enum Said {
    Taken,
    /// Why not.
    Refused(String),
    /// It ended without an answer: how.
    Crashed(String),
}

/// The program, and a directory of its own that goes with it.
#[derive(Debug)]
pub struct Envoy {
    path: PathBuf,
    version: String,
    scratch: TempDir,
}

impl Envoy {
    /// Asks the program for its version, which takes no longer than `limit`. Its directory is made in `parent`.
    ///
    /// # Errors
    ///
    /// If it does not say its version, or no directory can be made for its questions.
    pub fn new(path: &Path, parent: &Path, limit: Duration) -> Result<Self, String> {
        // It runs in another directory.
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let scratch = tempfile::Builder::new()
            .prefix("xds-server-oracle-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(parent);
        let scratch = scratch.map_err(|error| format!("no directory for its questions: {error}"))?;
        let mut envoy = Self { path, version: String::new(), scratch };
        let (_, words) = envoy.run(&["--version"], limit)?;
        // `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`
        let version = words.split_once("version: ").and_then(|(_, rest)| rest.split('/').nth(1));
        let version = version.ok_or_else(|| "it does not say the version of an Envoy".to_owned())?;
        envoy.version = version.chars().take(MAX_VERSION_CHARACTERS).collect();
        Ok(envoy)
    }

    /// `1.40.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Asks about a bootstrap, as bytes of the message.
    ///
    /// # Errors
    ///
    /// If it cannot be asked, or takes too long.
    pub(super) fn ask(&self, bootstrap: &[u8], limit: Duration) -> Result<Said, String> {
        // Envoy knows the form of a bootstrap by the end of its name.
        let file = self.scratch.path().join("bootstrap.pb");
        let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file);
        written
            .and_then(|mut file| file.write_all(bootstrap))
            .map_err(|error| format!("its question cannot be written: {error}"))?;
        let args = [
            "--mode",
            "validate",
            "-c",
            "bootstrap.pb",
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "critical",
        ];
        let ran = self.run(&args, limit);
        let _ = std::fs::remove_file(&file);
        let (status, words) = ran?;
        if status.success() {
            return Ok(Said::Taken);
        }
        Ok(match status.signal() {
            Some(signal) => Said::Crashed(format!("it ends by signal {signal}: {}", reason(&words))),
            None if words.contains(REFUSAL) => Said::Refused(reason(&words)),
            None => Said::Crashed(reason(&words)),
        })
    }

    /// How it ended, and what it wrote.
    fn run(&self, args: &[&str], limit: Duration) -> Result<(ExitStatus, String), String> {
        let (mut reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
        let errors = writer.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.path);
        command.args(args).current_dir(self.scratch.path()).env_clear();
        // Whatever it starts ends with it.
        command.process_group(0).stdin(Stdio::null()).stdout(writer).stderr(errors);
        let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
        // The command has ends of the pipe of its own.
        drop(command);
        let begun = Instant::now();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut words = Vec::new();
            let _ = reader.by_ref().take(MAX_WORDS).read_to_end(&mut words);
            let _ = tell.send(words);
        });
        let words = told.recv_timeout(limit);
        // Whoever has closed its output is about to end.
        let left = limit.saturating_sub(begun.elapsed());
        let ends = Instant::now() + if words.is_ok() { MAX_END.min(left) } else { Duration::ZERO };
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() >= ends {
                stop(&mut child);
                break;
            }
            thread::sleep(TICK);
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        let words = words.map_err(|_| format!("it takes more than {} s", limit.as_secs_f32().ceil()))?;
        Ok((status, String::from_utf8_lossy(&words).into_owned()))
    }
}

/// Stops a program that leads a group of processes, and that group.
fn stop(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
}

/// The reason in what an Envoy wrote.
fn reason(words: &str) -> String {
    let reason = words.split_once(REFUSAL).map(|(_, reason)| reason);
    // Further lines of the log begin with `[`; the text of a message may have several lines.
    let reason = reason.map(|reason| reason.split("\n[20").next().unwrap_or(reason)).unwrap_or(words);
    let reason: Vec<&str> = reason.split_whitespace().collect();
    let reason = reason.join(" ");
    let reason = reason.strip_prefix("goo.gle/debugproto : ").unwrap_or(&reason);
    match reason {
        "" => "without a reason".to_owned(),
        reason => reason.chars().take(MAX_REASON).collect(),
    }
}

/// What an Envoy writes before its reason.
const REFUSAL: &str = "error initializing configuration 'bootstrap.pb': ";

/// Bytes of what it writes that are read.
const MAX_WORDS: u64 = 256 << 10;

/// Characters of a reason.
const MAX_REASON: usize = 1_000;

/// How long it may take to end after its last word, and how often that is looked at.
const MAX_END: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(2);

const MAX_VERSION_CHARACTERS: usize = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    fn fake(dir: &TempDir, script: &str) -> Envoy {
        let path = dir.path().join("envoy");
        let version = "if [ \"$1\" = --version ]; then echo 'envoy  version: abc/1.2.3/Clean'; exit; fi";
        std::fs::write(&path, format!("#!/bin/sh\n{version}\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        Envoy::new(&path, &std::env::temp_dir(), Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn an_envoy_that_does_not_end_is_stopped() {
        let dir = TempDir::new().unwrap();
        let envoy = fake(&dir, "exec /bin/sleep 1000");
        let begun = Instant::now();
        let error = envoy.ask(&[], Duration::from_millis(100)).unwrap_err();
        assert_eq!(error, "it takes more than 1 s");
        assert!(begun.elapsed() < Duration::from_secs(100));
        let quiet = fake(&dir, "exec 1>&- 2>&-; exec /bin/sleep 1000");
        assert!(matches!(quiet.ask(&[], Duration::from_secs(100)), Ok(Said::Crashed(_))));
    }

    #[test]
    fn what_it_writes_without_end_is_not_kept() {
        let dir = TempDir::new().unwrap();
        let envoy = fake(&dir, "while :; do echo 0123456789012345678901234567890123456789; done");
        let Ok(Said::Crashed(why)) = envoy.ask(&[], Duration::from_secs(100)) else { panic!() };
        assert!(why.len() < 2 * MAX_REASON, "{}", why.len());
    }

    #[test]
    fn the_reason_is_without_the_log_around_it() {
        let log = "[2026-11-26 17:12:12.305][27867][critical][main] [source/server/config_validation/server.cc:76] error initializing configuration \
                   'bootstrap.pb': goo.gle/debugproto   \n: Proto constraint validation failed (X)\n[2026-11-26 17:12:12.306][1][info][main] exiting\n";
        assert_eq!(reason(log), "Proto constraint validation failed (X)");
        assert_eq!(reason("\n"), "without a reason");
    }
}
