//! Where data is kept by default.

use std::env;
use std::path::PathBuf;

use crate::error::SettingError;

/// `$XDG_STATE_HOME/xds-server`, else `~/.local/state/xds-server` (XDG Base Directory: a relative path does not count).
///
/// # Errors
///
/// [`SettingError::NoDataDir`] if neither is there.
pub fn default_data_dir() -> Result<PathBuf, SettingError> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("xds-server"))
        .ok_or(SettingError::NoDataDir)
}
