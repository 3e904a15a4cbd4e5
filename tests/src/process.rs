//! A child process whose output is remembered and which ends when it is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::wait::wait_for;

pub use rustix::process::Signal;

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: Log,
    /// The tasks that read the log.
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a program whose standard output and error are both its log.
    ///
    /// # Errors
    ///
    /// If the program cannot be run.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let (mut process, stdout) = Self::spawn_piped(name, command.stdin(Stdio::null()))?;
        process.child.stdin.take();
        process.readers.push(process.log.read(stdout));
        Ok(process)
    }

    /// Starts a program that is talked to; its standard error is its log.
    ///
    /// # Errors
    ///
    /// If the program cannot be run.
    pub fn spawn_talking(name: &str, command: &mut Command) -> Result<(Self, ChildStdin, ChildStdout)> {
        let (mut process, stdout) = Self::spawn_piped(name, command.stdin(Stdio::piped()))?;
        let stdin = process.child.stdin.take().context("the child has no stdin")?;
        Ok((process, stdin, stdout))
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().with_context(|| format!("{} has ended", self.name))?;
        let id = Pid::from_raw(i32::try_from(id)?).context("a process id is not 0")?;
        kill_process(id, signal).with_context(|| format!("signal to {}", self.name))
    }

    /// Kills it and all that it has started, if it leads a process group of its own.
    pub(crate) fn kill_group(&self) {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            // They may have ended.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    /// The process id, or `None` once it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns how the process ended, or `None` if it runs. Whatever it wrote before it ended is in the log then.
    ///
    /// # Errors
    ///
    /// If the operating system gives no answer.
    pub async fn try_exit(&mut self) -> Result<Option<ExitStatus>> {
        let ended = self.child.try_wait()?;
        if ended.is_some() {
            self.finish_log().await;
        }
        Ok(ended)
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    ///
    /// If it is still there after `limit`.
    pub async fn wait_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        let Ok(status) = timeout(limit, self.child.wait()).await else {
            bail!("{} did not end within {limit:?}\n{}", self.name, self.log);
        };
        self.finish_log().await;
        Ok(status?)
    }

    /// Waits for a line of the log in which `find` finds something; lines already written count.
    ///
    /// # Errors
    ///
    /// If there is none within `limit`, or the process ends without one.
    pub async fn wait_line<T>(
        &mut self,
        what: &str,
        limit: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let log = self.log.clone();
        let found = wait_for(what, limit, async || {
            let ended = self.try_exit().await?;
            match (log.find(&find), ended) {
                (Some(value), _) => Ok(Ok(value)),
                (None, Some(status)) => Ok(Err(status)),
                (None, None) => bail!("no such line"),
            }
        });
        match found.await.with_context(|| format!("{}\n{log}", self.name))? {
            Ok(value) => Ok(value),
            Err(status) => bail!("{} ended with {status}\n{log}", self.name),
        }
    }

    /// The log of the program.
    #[must_use]
    pub fn log(&self) -> Log {
        self.log.clone()
    }

    /// Waits until what the program wrote before it ended has been read.
    async fn finish_log(&mut self) {
        for reader in self.readers.drain(..) {
            // A child of the child may keep the pipe open.
            let _ = timeout(LOG_LIMIT, reader).await;
        }
    }

    fn spawn_piped(name: &str, command: &mut Command) -> Result<(Self, ChildStdout)> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {:?}", command.as_std()))?;
        let log = Log::default();
        let readers = vec![log.read(child.stderr.take().context("the child has no stderr")?)];
        let stdout = child.stdout.take().context("the child has no stdout")?;
        Ok((Self { name: name.to_owned(), child, log, readers }, stdout))
    }
}

/// The last lines that a program wrote. `Display` gives the very last, for a failure's message.
#[derive(Clone, Default)]
pub struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Log {
    /// Returns what `find` finds in the earliest line that has it.
    pub fn find<T>(&self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.lock().iter().find_map(|line| find(line))
    }

    /// Returns the lines that contain `text`, oldest first.
    #[must_use]
    pub fn containing(&self, text: &str) -> Vec<String> {
        self.lock().iter().filter(|line| line.contains(text)).cloned().collect()
    }

    /// Reads lines from `output` until it ends.
    fn read(&self, output: impl AsyncRead + Send + Unpin + 'static) -> JoinHandle<()> {
        let log = self.clone();
        tokio::spawn(async move {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).await.is_ok_and(|n| n > 0) {
                let mut lines = log.lock();
                if lines.len() == MAX_LINES {
                    lines.pop_front();
                }
                lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lock();
        for line in lines.iter().skip(lines.len().saturating_sub(MAX_LINES_SHOWN)) {
            writeln!(f, "  | {line}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({} lines)", self.lock().len())
    }
}

/// The longest wait for the rest of a pipe, which takes no time to read.
const LOG_LIMIT: Duration = Duration::from_secs(2);
/// No test looks further back; a client that logs every call must not fill the memory.
const MAX_LINES: usize = 20_000;
/// As much as fits a failure's message.
const MAX_LINES_SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_written_before_the_end_is_found_after_it() {
        let mut process =
            Process::spawn("sh", Command::new("sh").args(["-c", "echo one; echo two >&2"])).unwrap();
        process.wait_exit(Duration::from_secs(5)).await.unwrap();
        let find = |line: &str| (line == "two").then_some(2);
        assert_eq!(process.wait_line("two", Duration::from_secs(5), find).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn an_end_without_the_line_is_an_error_with_the_log() {
        let mut process = Process::spawn("sh", Command::new("sh").args(["-c", "echo one; exit 3"])).unwrap();
        process.wait_exit(Duration::from_secs(5)).await.unwrap();
        let error =
            process.wait_line("two", Duration::from_secs(5), |_| None::<()>).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("  | one"), "{error}");
    }

    #[tokio::test]
    async fn a_signal_ends_a_process() {
        let mut process = Process::spawn("sleep", Command::new("sleep").arg("60")).unwrap();
        process.signal(Signal::TERM).unwrap();
        assert!(!process.wait_exit(Duration::from_secs(5)).await.unwrap().success());
        assert!(process.signal(Signal::TERM).is_err());
    }
}
