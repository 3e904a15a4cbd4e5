//! Files for the answers to questions: watched ones, read once more to find the lines of what is served, and texts that are only asked
//! about.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use xds_api::FileTexts;
use xds_cache::Version;
use xds_codec::{Codec, Limits};
use xds_control::model::FileLoad;
use xds_files::deadline::Hands;
use xds_files::load::{FilesState, Loaded, Options, load};
use xds_files::read::{DEADLINE, FileContent, FileFault, Scan, read_again};
use xds_files::timing::Removals;
use xds_routes::UnknownFields;

/// Reads files that were read before, one at a time.
pub struct Again {
    codec: Codec,
    limits: Limits,
    unknown_fields: UnknownFields,
    hands: Mutex<Hands>,
}

impl Again {
    /// Reads files within these limits.
    #[must_use]
    pub fn new(codec: Codec, limits: Limits, unknown_fields: UnknownFields) -> Self {
        Self { codec, limits, unknown_fields, hands: Mutex::new(Hands::new(DEADLINE)) }
    }
}

impl FileTexts for Again {
    fn read(&self, path: &Arc<str>, max: usize, hash: &Version) -> Option<Arc<[u8]>> {
        let (limit, hash) = (self.limits.max_bytes.min(max), *hash);
        let mut hands = self.hands.lock().unwrap_or_else(PoisonError::into_inner);
        let file = Arc::clone(path);
        hands.run(path, move |_| read_again(Path::new(&*file), limit, &hash)).ok()?
    }

    fn load(&self, texts: BTreeMap<Arc<str>, Arc<[u8]>>) -> FileLoad {
        let content = |bytes: Arc<[u8]>| {
            let limit = self.limits.max_bytes;
            match bytes.len() <= limit {
                true => Ok(FileContent { hash: Version::of(&bytes), bytes }),
                false => Err(FileFault::TooLarge { bytes: bytes.len() as u64, limit }),
            }
        };
        let files = texts.into_iter().map(|(path, bytes)| (path, content(bytes))).collect();
        let scan = Scan { files, faults: BTreeMap::new(), is_settled: true };
        let options =
            Options { removals: Removals::Due, is_partial_start: true, unknown_fields: self.unknown_fields };
        let decode =
            |path: &str, content: &FileContent| self.codec.decode_file(path, &content.bytes, &self.limits);
        let Loaded { state, load, .. } =
            load(&FilesState::default(), &scan, options, SystemTime::now(), decode);
        FileLoad { texts: state.texts(&scan, &self.limits), ..load }
    }
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again").field("limits", &self.limits).finish_non_exhaustive()
    }
}
