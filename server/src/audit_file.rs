//! The audit log as a file: lines are appended, reach the disk at once if that is asked for, and a full file makes room for a new one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use xds_access::audit::Sink;

use crate::aside::without_runtime;
use crate::config::AuditLog;

/// Opens the audit log; `-` is standard output.
///
/// # Errors
///
/// If the file cannot be opened.
pub(crate) fn open(log: &AuditLog) -> io::Result<Sink> {
    if log.is_stdout() {
        return Ok(Box::new(io::stdout()));
    }
    Ok(Box::new(AuditFile { file: append_to(&log.path)?, log: log.clone(), may_be_torn: true }))
}

struct AuditFile {
    log: AuditLog,
    file: File,
    /// True if the last line may lack its end: a process died in it, or the disk was full.
    may_be_torn: bool,
}

impl AuditFile {
    /// Returns `true` if a line of this length would make the file too large. A file has one line at least.
    fn is_full_for(&self, n_bytes: usize) -> io::Result<bool> {
        let Some(max) = self.log.max_bytes else { return Ok(false) };
        let has = self.file.metadata()?.len();
        Ok(has > 0 && has.saturating_add(n_bytes as u64) > max as u64)
    }

    /// Renames the file to `FILE.1`, that to `FILE.2` and so on, and begins a new one. The oldest is replaced.
    fn rotate(&mut self) -> io::Result<()> {
        let path = &self.log.path;
        for nth in (1..self.log.n_kept).rev() {
            rename_if_there(&numbered(path, nth), &numbered(path, nth + 1))?;
        }
        rename_if_there(path, &numbered(path, 1))?;
        self.file = append_to(path)?;
        self.may_be_torn = false;
        if self.log.is_synced {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    }
}

impl Write for AuditFile {
    /// Writes a whole line, on a line of its own.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_full_for(line.len())? {
            self.rotate()?;
        }
        if self.may_be_torn && is_torn(&self.log.path)? {
            self.file.write_all(b"\n")?;
        }
        self.may_be_torn = true;
        self.file.write_all(line)?;
        self.may_be_torn = false;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.log.is_synced { without_runtime(|| self.file.sync_data()) } else { Ok(()) }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Returns `true` if the last line of a file has no end. What is not a file, such as a pipe, has no lines that stay.
fn is_torn(path: &Path) -> io::Result<bool> {
    let metadata = fs::metadata(path)?;
    let Some(last) = metadata.len().checked_sub(1).filter(|_| metadata.is_file()) else { return Ok(false) };
    let mut byte = [0];
    File::open(path)?.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

fn numbered(path: &Path, nth: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{nth}"));
    name.into()
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(directory: &Path) -> AuditLog {
        AuditLog { path: directory.join("audit.log"), max_bytes: Some(20), n_kept: 2, is_synced: true }
    }

    fn files(directory: &Path) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    }

    fn write(sink: &mut Sink, lines: &[&str]) {
        for line in lines {
            sink.write_all(line.as_bytes()).and_then(|()| sink.flush()).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_file_makes_room_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(&log(directory.path())).unwrap();
        write(
            &mut sink,
            &["first 890\n", "second 90\n", "third 890\n", "a line longer than a file\n", "last\n"],
        );
        let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let expected = [
            text("audit.log", "last\n"),
            text("audit.log.1", "a line longer than a file\n"),
            text("audit.log.2", "third 890\n"),
        ];
        assert_eq!(files(directory.path()), expected);
    }

    #[test]
    fn a_file_goes_on_where_it_ended_and_is_never_full_by_default() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog { max_bytes: None, ..log(directory.path()) };
        write(&mut open(&log).unwrap(), &["before the restart\n"]);
        write(&mut open(&log).unwrap(), &["after the restart\n"]);
        let all = "before the restart\nafter the restart\n".to_owned();
        assert_eq!(files(directory.path()), [("audit.log".to_owned(), all)]);
    }

    #[test]
    fn a_line_after_a_torn_one_begins_on_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog { max_bytes: None, ..log(directory.path()) };
        fs::write(&log.path, "whole\n{\"ts\": \"tor").unwrap();
        let mut sink = open(&log).unwrap();
        write(&mut sink, &["first\n", "second\n"]);
        drop(sink);
        write(&mut open(&log).unwrap(), &["after the restart\n"]);
        let all = "whole\n{\"ts\": \"tor\nfirst\nsecond\nafter the restart\n".to_owned();
        assert_eq!(files(directory.path()), [("audit.log".to_owned(), all)]);
    }

    #[test]
    fn old_files_that_cannot_be_renamed_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(&AuditLog { n_kept: 1, ..log(directory.path()) }).unwrap();
        write(&mut sink, &["first 890\n", "second 90\n"]);
        fs::create_dir_all(directory.path().join("audit.log.1/not-empty")).unwrap();
        assert!(sink.write_all(b"third\n").is_err());
        fs::remove_dir_all(directory.path().join("audit.log.1")).unwrap();
        write(&mut sink, &["third\n"]);
        assert_eq!(files(directory.path()).len(), 2);
    }
}
