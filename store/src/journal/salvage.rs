//! Getting damage out of the way, so that what is before it can be used.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::journal::list;
use crate::journal::segment::{Damage, file_name, file_number};
use crate::{FileError, OpenNote, files};

/// Moves what is at and behind a damage to `*.damaged-<n>`, next to where it was.
///
/// A file of which nothing can be used is moved as a whole; what is behind it is left to the next reading. A crash
/// at any point leaves every byte in one place at least.
pub(crate) fn move_damage_aside(
    dir: &Path,
    damage: Damage,
    notes: &mut Vec<OpenNote>,
) -> Result<(), FileError> {
    let Damage { path, offset, usable_end, reason } = damage;
    let Some(end) = usable_end else {
        let aside = files::move_aside(&path)?;
        notes.push(OpenNote::Salvaged { path, offset, aside, reason });
        return Ok(());
    };
    let number = path.file_name().and_then(|name| name.to_str()).and_then(file_number);
    for later in list(dir)?.into_iter().filter(|later| Some(*later) > number).rev() {
        let path = dir.join(file_name(later));
        let aside = files::move_aside(&path)?;
        let reason = format!("it continues a damaged file: {reason}");
        notes.push(OpenNote::Salvaged { path, offset: 0, aside, reason });
    }
    let aside = files::unused_aside(&path);
    copy_from(&path, end, &aside).map_err(|error| FileError::new("copy the damage to", &aside, error))?;
    files::sync_dir(dir)?;
    let cut = File::options().write(true).open(&path).and_then(|file| {
        file.set_len(end)?;
        file.sync_all()
    });
    cut.map_err(|error| FileError::new("cut the damage off", &path, error))?;
    notes.push(OpenNote::Salvaged { path, offset, aside, reason });
    Ok(())
}

fn copy_from(path: &Path, start: u64, aside: &Path) -> io::Result<()> {
    let mut source = File::open(path)?;
    source.seek(SeekFrom::Start(start))?;
    let mut target = files::create_file(aside).map_err(|error| io::Error::from(error.kind()))?;
    io::copy(&mut source.take(u64::MAX), &mut target)?;
    target.sync_all()
}
