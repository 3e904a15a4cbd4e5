//! Carries out a salvage.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{Piece, Salvage};
use crate::{FileError, OpenError, files};

impl Salvage {
    /// Makes the store usable, and returns each file that was changed with the one that has what it was before.
    ///
    /// A crash at any point leaves every byte in one file at least.
    ///
    /// # Errors
    ///
    /// If a file cannot be written; then another attempt may succeed.
    pub fn carry_out(self) -> Result<Vec<(PathBuf, PathBuf)>, OpenError> {
        let mut kept = Vec::new();
        for piece in &self.pieces {
            kept.push((piece.path.clone(), keep_copy(&piece.path)?));
        }
        files::sync_dir(&self.dir)?;
        if let Some(rescue) = &self.rescue {
            // From its name on, the checkpoint makes the damaged files before it superfluous.
            rescue.write(&self.dir)?.install()?;
        }
        // The last ones first: what is left after a crash is still a journal with its end missing.
        for piece in self.pieces.iter().rev() {
            cut(piece)?;
        }
        files::sync_dir(&self.dir)?;
        for path in self.marks_beyond {
            let aside = files::move_aside(&path)?;
            kept.push((path, aside));
        }
        Ok(kept)
    }
}

/// Keeps what is in a file under another name, and returns that. The names are not durable yet.
fn keep_copy(path: &Path) -> Result<PathBuf, FileError> {
    let aside = files::unused_aside(path);
    // Not every file system has a second name for a file.
    if std::fs::hard_link(path, &aside).is_err() {
        copy(path, &aside, u64::MAX)?;
    }
    Ok(aside)
}

/// Takes a piece out of the journal. The file itself is not written to: it has another name already.
fn cut(piece: &Piece) -> Result<(), FileError> {
    if piece.offset == 0 {
        return files::remove_file_if_exists(&piece.path);
    }
    let temporary = piece.path.with_extension("tmp");
    copy(&piece.path, &temporary, piece.offset)?;
    files::rename(&temporary, &piece.path)
}

fn copy(from: &Path, to: &Path, length: u64) -> Result<(), FileError> {
    let mut target = files::create_file(to)?;
    let copied = File::open(from).and_then(|source| {
        io::copy(&mut source.take(length), &mut target)?;
        target.sync_all()
    });
    copied.map_err(|error| FileError::new("write", to, error))
}
