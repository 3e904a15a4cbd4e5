//! The texts of files, in which the places of fields are found again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use xds_codec::{Diagnostic, Limits, Syntax};

/// The texts of the files that hold resources, as they were when these were read.
///
/// A resource keeps where it begins, and the path of each field that names another. The fields' places would cost memory for
/// every resource and are wanted of few: they are found again in the text.
#[derive(Clone, Default)]
pub struct Texts {
    files: BTreeMap<Arc<str>, Arc<[u8]>>,
    limits: Limits,
}

impl Texts {
    /// The texts of these files, by path, and the limits by which they were read.
    #[must_use]
    pub fn new(files: BTreeMap<Arc<str>, Arc<[u8]>>, limits: &Limits) -> Self {
        Self { files, limits: *limits }
    }

    /// Moves each diagnostic that stands at a resource to the field that it is about. Reads up to [`MAX_BYTES`] of text,
    /// which may take a second; diagnostics of further files stay where they are.
    pub fn move_to_fields(&self, diagnostics: &mut [Diagnostic]) {
        let mut by_file: BTreeMap<Arc<str>, Vec<&mut Diagnostic>> = BTreeMap::new();
        for diagnostic in diagnostics.iter_mut().filter(|diagnostic| !diagnostic.path.is_empty()) {
            by_file.entry(Arc::clone(&diagnostic.place.file)).or_default().push(diagnostic);
        }
        let mut n_left = MAX_BYTES;
        for (file, diagnostics) in by_file {
            let Some(text) = self.files.get(&file).filter(|text| text.len() <= n_left) else { continue };
            n_left -= text.len();
            if let Ok(documents) = xds_codec::parse(&file, text, Syntax::of_file(&file), &self.limits) {
                xds_codec::move_to_fields(&documents, diagnostics);
            }
        }
    }

    /// Returns `true` if there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl fmt::Debug for Texts {
    /// Only how many: the texts may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Texts({})", self.files.len())
    }
}

/// Three files of the largest size; parsing that much takes about a second.
const MAX_BYTES: usize = 32 << 20;
