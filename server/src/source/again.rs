//! Watched files, read once more to find the lines of what is served.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use xds_api::FileTexts;
use xds_cache::Version;

use super::deadline::Hands;
use super::read::{DEADLINE, read_again};

/// Reads files that were read before, one at a time.
pub struct Again {
    max_bytes: usize,
    hands: Mutex<Hands>,
}

impl Again {
    /// Files have at most so many bytes.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, hands: Mutex::new(Hands::new(DEADLINE)) }
    }
}

impl FileTexts for Again {
    fn read(&self, path: &Arc<str>, max: usize, hash: &Version) -> Option<Arc<[u8]>> {
        let (limit, hash) = (self.max_bytes.min(max), *hash);
        let mut hands = self.hands.lock().unwrap_or_else(PoisonError::into_inner);
        let file = Arc::clone(path);
        hands.run(path, move |_| read_again(Path::new(&*file), limit, &hash)).ok()?
    }
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}
