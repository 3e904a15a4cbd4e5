//! Costs of one changed file among many: the memory that a load and what the control makes of it take meanwhile, which shows
//! whatever is done for every document, and what a load reads.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use tempfile::TempDir;
use xds_cache::loads::{LoadBoard, LoadLimits};
use xds_cache::{Publisher, StatusBoard};
use xds_codec::{Codec, Limits};
use xds_control::acks::Acks;
use xds_control::model::{Asked, FileLoad};
use xds_control::{Control, ControlParts, Options as ControlOptions};
use xds_files::load::{FilesState, Loaded, Options, load};
use xds_files::read::{FileContent, Scan};
use xds_files::timing::Removals;
use xds_routes::UnknownFields;
use xds_store::{JournalStore, Options as StoreOptions};

use crate::{ALLOCATOR, alone};

/// How much more a change may take among twenty times as many documents: maps are deeper.
const MOST: f64 = 1.5;

const N_FILES: usize = 10;

/// The file that changes, and how many documents it has.
const CHANGED: (usize, usize) = (3, 20);

/// Files, and how many of them were parsed since it was asked last.
struct World {
    codec: Codec,
    scan: Scan,
    state: FilesState,
    n_parsed: AtomicUsize,
    control: Control,
    _dir: TempDir,
}

fn text(file: usize, n_documents: usize, port: u16) -> FileContent {
    let mut text = String::new();
    for n in 0..n_documents {
        // One of the file differs by its port.
        let port = if n == 7 { port } else { 8080 };
        let name = format!("slice-{file:04}-{n:02}");
        let metadata = format!(
            "metadata: {{name: {name}, namespace: prod, labels: {{kubernetes.io/service-name: {name}}}}}"
        );
        let rest =
            format!("addressType: IPv4\nports: [{{port: {port}}}]\nendpoints: [{{addresses: [10.0.0.1]}}]");
        writeln!(text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n{metadata}\n{rest}")
            .unwrap();
    }
    FileContent::new(text.as_bytes())
}

impl World {
    fn of(n_in_others: usize) -> Self {
        let n_in = |file| if file == CHANGED.0 { CHANGED.1 } else { n_in_others };
        let files =
            (0..N_FILES).map(|file| (format!("d/{file:04}.yaml").into(), Ok(text(file, n_in(file), 8080))));
        let scan = Scan { files: files.collect(), faults: BTreeMap::new(), is_settled: true };
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = JournalStore::open(dir.path(), StoreOptions::default()).unwrap();
        let (publisher, board) = (Arc::new(Publisher::new()), StatusBoard::new());
        let acks = Arc::new(Acks::new(Arc::clone(&publisher), Arc::clone(&board)));
        let loads = Arc::new(LoadBoard::new(LoadLimits::default()));
        let (store, codec) = (Arc::new(store), Codec::new().unwrap());
        let parts =
            ControlParts { codec, store, publisher, board, acks, loads, observer: None, oracle: None };
        let options =
            ControlOptions { watches_files: true, hold_mass_removal: Some(0.5), ..ControlOptions::default() };
        let control = Control::open(parts, options).unwrap();
        let (state, n_parsed) = (FilesState::default(), AtomicUsize::default());
        Self { codec: Codec::new().unwrap(), scan, state, n_parsed, control, _dir: dir }
    }

    fn load(&mut self) -> FileLoad {
        let options = Options {
            removals: Removals::Due,
            is_partial_start: false,
            unknown_fields: UnknownFields::Refuse,
        };
        let Loaded { state, load, .. } =
            load(&self.state, &self.scan, options, UNIX_EPOCH, |path, content| {
                self.n_parsed.fetch_add(1, Ordering::Relaxed);
                self.codec.decode_file(path, &content.bytes, &Limits::default())
            });
        self.state = state;
        load
    }

    /// Changes one document; returns how many bytes more the load and the control took meanwhile, and how many files were parsed.
    async fn change(&mut self, port: u16) -> (usize, usize, usize) {
        self.scan.files.insert("d/0003.yaml".into(), Ok(text(CHANGED.0, CHANGED.1, port)));
        let peak = |before: usize| ALLOCATOR.peak_usage() - before;
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let load = self.load();
        let by_load = peak(before);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let revision = self.control.overrides().0;
        self.control.take_files(load, Asked::ByNobody).await.unwrap();
        let by_control = peak(before);
        assert_eq!(self.control.overrides().0.0, revision.0 + 1);
        (by_load, by_control, self.n_parsed.swap(0, Ordering::Relaxed))
    }
}

#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "the runtime has one thread and one task")]
async fn a_change_of_one_file_costs_the_same_among_any_number_of_documents() {
    let _alone = alone();
    let mut taken = Vec::new();
    for n_in_others in [10, 200] {
        let mut world = World::of(n_in_others);
        let load = world.load();
        let n_documents = CHANGED.1 + (N_FILES - 1) * n_in_others;
        assert_eq!(load.documents.len(), n_documents);
        world.control.take_files(load, Asked::ByNobody).await.unwrap();
        assert_eq!(world.n_parsed.swap(0, Ordering::Relaxed), N_FILES);
        // The first one makes what is made once.
        world.change(8081).await;
        let (mut by_load, mut by_control) = (Vec::new(), Vec::new());
        for port in 8082..8087 {
            let (load, control, n_parsed) = world.change(port).await;
            assert_eq!(n_parsed, 1);
            by_load.push(load);
            by_control.push(control);
        }
        // The thread of the journal allocates and frees meanwhile, so that one or the other may be too much or too little.
        let typical = [by_load, by_control].map(|mut bytes| {
            bytes.sort_unstable();
            bytes[bytes.len() / 2]
        });
        println!("{n_documents} documents: {} bytes by the load, {} by the control", typical[0], typical[1]);
        taken.push(typical);
    }
    let (few, many) = (taken[0], taken[1]);
    for (few, many) in few.into_iter().zip(many) {
        assert!((many as f64) < few as f64 * MOST, "{few} bytes, and {many} among twenty times as many");
    }
}
