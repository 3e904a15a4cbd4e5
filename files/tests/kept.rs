//! The memory of a document as one of a file, counted in allocated bytes; `routes/tests/kept.rs` has that of a document by itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use xds_codec::{Codec, Limits};
use xds_files::load::{FilesState, Loaded, Options, load};
use xds_files::read::{FileContent, Scan};
use xds_files::timing::Removals;
use xds_routes::UnknownFields;

use crate::{ALLOCATOR, alone};

/// 640 for the document, and the rest for what its file claims, what is served, and how that is shown.
const MOST_OF_DOCUMENT: usize = 900;

/// The facts about a load are shared by all who keep it.
const MOST_OF_COPY: usize = 10;

const N_FILES: usize = 40;
const N_IN_FILE: usize = 100;

#[test]
fn a_document_of_a_file_costs_little_more_than_it_keeps() {
    let _alone = alone();
    let codec = Codec::new().unwrap();
    let text = |file: usize| {
        let mut text = String::new();
        for n in 0..N_IN_FILE {
            let name = format!("service-{file:02}-{n:03}");
            let metadata = format!("metadata:\n  name: {name}\n  namespace: prod\n");
            let spec = "spec:\n  ports:\n  - name: grpc\n    port: 50051\n";
            write!(text, "---\napiVersion: v1\nkind: Service\n{metadata}{spec}").unwrap();
        }
        (format!("d/{file:02}.yaml").into(), Ok(FileContent::new(text.as_bytes())))
    };
    let scan = Scan { files: (0..N_FILES).map(text).collect(), faults: BTreeMap::new(), is_settled: true };
    let options =
        Options { removals: Removals::Due, is_partial_start: false, unknown_fields: UnknownFields::Refuse };
    let loaded = || -> Loaded {
        load(&FilesState::default(), &scan, options, UNIX_EPOCH, |path, content| {
            codec.decode_file(path, &content.bytes, &Limits::default())
        })
    };
    // By now everything exists that a process makes only once.
    drop(loaded());
    let before = ALLOCATOR.current_usage();
    let loaded = loaded();
    let of_document = (ALLOCATOR.current_usage() - before) / (N_FILES * N_IN_FILE);
    assert_eq!(loaded.load.documents.len(), N_FILES * N_IN_FILE);
    let before = ALLOCATOR.current_usage();
    let copy = loaded.load.clone();
    let of_copy = (ALLOCATOR.current_usage() - before) / (N_FILES * N_IN_FILE);
    drop((copy, loaded));
    println!("{of_document} bytes for a document, {of_copy} for a copy of the load");
    assert!(of_document <= MOST_OF_DOCUMENT, "{of_document} bytes for a document");
    assert!(of_copy <= MOST_OF_COPY, "{of_copy} bytes for a copy");
}
