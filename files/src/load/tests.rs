//! A small language stands for YAML: one object a line, see [`decode`].

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use xds_cache::group::Glob;
use xds_cache::{DrainPolicy, Layer, NodeGroup, Origin, Resource, ResourceKey, ResourceType, Selector};
use xds_codec::{Codec, Limits, Object, ObjectContent, Severity};
use xds_routes::UnknownFields;

use super::*;
use crate::read::FileFault;

mod documents;
mod properties;

/// `name=value` is a cluster, `name!` a bad one, `?` unreadable, `group name id` a node group, `group!` a bad one; `<` and
/// nothing at all are broken.
fn decode(path: &str, content: &FileContent) -> DecodedFile {
    let text = String::from_utf8_lossy(&content.bytes).into_owned();
    let place = |line: usize| Place { file: path.into(), line: line as u32 + 1, column: 1 };
    let error = |line| vec![diagnostic("bad", place(line), "bad".to_owned())];
    if text.contains('<') || text.is_empty() {
        return DecodedFile { objects: vec![], diagnostics: error(0), broken: true };
    }
    let object = |(line, words): (usize, &str)| {
        let content = if let Some(name) = words.strip_suffix('!').filter(|name| *name != "group") {
            ObjectContent::Resource { key: key(name), outcome: Err(error(line)) }
        } else if let Some((name, value)) = words.split_once('=') {
            ObjectContent::Resource { key: key(name), outcome: Ok(cluster(path, line, name, value)) }
        } else if let Some(group) = words.strip_prefix("group ") {
            ObjectContent::NodeGroup { name: group.to_owned(), outcome: Ok(group_of(group)) }
        } else if words == "group!" {
            ObjectContent::NodeGroup { name: String::new(), outcome: Err(error(line)) }
        } else {
            ObjectContent::Unreadable(error(line))
        };
        Object { place: place(line), content }
    };
    DecodedFile {
        objects: text.lines().enumerate().map(object).collect(),
        diagnostics: vec![],
        broken: false,
    }
}

fn codec() -> &'static Codec {
    static CODEC: std::sync::LazyLock<Codec> = std::sync::LazyLock::new(|| Codec::new().unwrap());
    &CODEC
}

fn key(name: &str) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::Cluster, name: name.into() }
}

fn cluster(path: &str, line: usize, name: &str, value: &str) -> Resource {
    let mut draft = Resource::plain(ResourceType::Cluster, name, value.as_bytes().to_vec()).to_draft();
    draft.origin = Origin::File { path: path.into(), line: line as u32 + 1, column: 1 };
    Resource::new(draft)
}

/// `name` or `name id`.
fn group_of(words: &str) -> NodeGroup {
    let (name, id) = words.split_once(' ').unwrap_or((words, words));
    let selector = Selector { node_ids: vec![Glob::new(id)], ..Selector::nothing() };
    NodeGroup {
        name: GroupName::new(name).unwrap(),
        selector,
        priority: 0,
        client: None,
        waves: None,
        drain: DrainPolicy::default(),
        identities: Arc::default(),
        tries_identities: false,
    }
}

fn scan(files: &[(&str, &str)]) -> Scan {
    let files = files.iter().map(|(path, text)| ((*path).into(), Ok(FileContent::new(text.as_bytes()))));
    Scan { files: files.collect(), faults: BTreeMap::new(), is_settled: true }
}

/// Loads one after the other.
#[derive(Default)]
struct Files {
    state: FilesState,
    is_partial_start: bool,
    last: Option<Loaded>,
}

impl Files {
    fn loaded(files: &[(&str, &str)]) -> Self {
        let mut world = Self::default();
        world.due(&scan(files));
        world
    }

    fn load(&mut self, scan: &Scan, removals: Removals) -> &Loaded {
        let options = Options {
            removals,
            is_partial_start: self.is_partial_start,
            unknown_fields: UnknownFields::Refuse,
        };
        let loaded = load(&self.state, scan, options, UNIX_EPOCH, decode);
        self.state = loaded.state.clone();
        self.last.insert(loaded)
    }

    fn postponed(&mut self, scan: &Scan) -> &Loaded {
        self.load(scan, Removals::Postponed)
    }

    fn due(&mut self, scan: &Scan) -> &Loaded {
        self.load(scan, Removals::Due)
    }

    /// `group/name=value`, in order.
    fn served(&self) -> Vec<String> {
        served(self.last.as_ref().unwrap())
    }

    /// `path:line code`, in order.
    fn errors(&self) -> Vec<String> {
        let files = self.last.as_ref().unwrap().load.files.values();
        let errors = files.flat_map(|file| &file.diagnostics).filter(|one| one.severity == Severity::Error);
        errors.map(|one| format!("{}:{} {}", one.place.file, one.place.line, one.code)).collect()
    }

    fn is_complete(&self) -> bool {
        self.last.as_ref().unwrap().load.is_complete
    }

    /// The same after a restart of the process.
    fn restarted(&self) -> Self {
        let copies = persist::changed_copies(&FilesState::default(), &self.state);
        let copies =
            copies.into_iter().filter_map(|(path, copy)| Some((path.to_string(), copy?.into()))).collect();
        let (state, damaged) = persist::restore(&copies, UNIX_EPOCH);
        assert!(damaged.is_empty());
        Self { state, ..Self::default() }
    }
}

fn served(loaded: &Loaded) -> Vec<String> {
    let groups = loaded.load.layer.groups.iter();
    let all = groups.flat_map(|(group, of)| of.resources.values().map(move |resource| (group, resource)));
    all.map(|(group, r)| format!("{group}/{}={}", r.name(), String::from_utf8_lossy(&r.value()))).collect()
}

#[test]
fn a_syntax_error_keeps_the_last_good_contents_of_its_file_alone() {
    for broken in ["<", ""] {
        let mut files = Files::loaded(&[("a", "x=1\ny=1"), ("b", "z=1")]);
        assert!(files.is_complete());
        files.due(&scan(&[("a", broken), ("b", "z=2")]));
        assert_eq!(files.served(), ["default/x=1", "default/y=1", "default/z=2"]);
        assert_eq!(files.errors(), ["a:1 bad"]);
        let status = &files.last.as_ref().unwrap().load.files["a"];
        assert!(status.is_last_good && status.objects.iter().all(|object| object.is_last_good));
        assert_eq!(status.objects.len(), 2);
        files.due(&scan(&[("a", "x=3"), ("b", "z=2")]));
        assert_eq!(files.served(), ["default/x=3", "default/z=2"]);
        assert!(files.errors().is_empty());
    }
}

#[test]
fn pitfall_69_a_bad_object_keeps_its_last_good_version_and_the_rest_goes_on() {
    let mut files = Files::loaded(&[("a", "x=1\ny=1")]);
    files.due(&scan(&[("a", "x!\ny=2\nz=1\nnew!")]));
    assert_eq!(files.served(), ["default/x=1", "default/y=2", "default/z=1"]);
    assert_eq!(files.errors(), ["a:1 bad", "a:4 bad"]);
    let objects = &files.last.as_ref().unwrap().load.files["a"].objects;
    assert_eq!(
        objects.iter().map(|o| (o.name(), o.is_last_good)).collect::<Vec<_>>(),
        [("x".into(), true), ("y".into(), false), ("z".into(), false)]
    );
    files.due(&scan(&[("a", "y=2\nz=1")]));
    assert_eq!(files.served(), ["default/y=2", "default/z=1"]);
}

#[test]
fn what_may_be_hidden_in_an_unreadable_object_stays() {
    let mut files = Files::loaded(&[("a", "x=1\ny=1")]);
    files.due(&scan(&[("a", "?\ny=2")]));
    assert_eq!(files.served(), ["default/x=1", "default/y=2"]);
    files.due(&scan(&[("a", "y=2")]));
    assert_eq!(files.served(), ["default/y=2"]);
}

#[test]
fn deleting_a_file_deletes_its_resources_once_that_is_due() {
    let mut files = Files::loaded(&[("a", "x=1"), ("b", "y=1")]);
    assert!(files.postponed(&scan(&[("b", "y=2")])).postpones_removals);
    assert_eq!(files.served(), ["default/x=1", "default/y=2"]);
    assert!(!files.due(&scan(&[("b", "y=2")])).postpones_removals);
    assert_eq!(files.served(), ["default/y=2"]);
}

#[test]
fn pitfall_70_a_file_that_comes_back_in_time_was_never_away() {
    let mut files = Files::loaded(&[("a", "x=1")]);
    files.postponed(&scan(&[]));
    assert_eq!(files.served(), ["default/x=1"]);
    // Even if it comes back broken.
    files.postponed(&scan(&[("a", "<")]));
    files.due(&scan(&[("a", "<")]));
    assert_eq!(files.served(), ["default/x=1"]);
    files.due(&scan(&[("a", "x=2")]));
    assert_eq!(files.served(), ["default/x=2"]);
}

#[test]
fn an_unsettled_scan_removes_nothing() {
    let mut files = Files::loaded(&[("a", "x=1")]);
    files.due(&Scan { is_settled: false, ..Scan::default() });
    assert_eq!(files.served(), ["default/x=1"]);
}

#[test]
fn an_object_that_moves_to_another_file_is_a_change() {
    // The new file comes first: the owner keeps the object until it lets go.
    let mut files = Files::loaded(&[("a", "x=1\ny=1")]);
    files.postponed(&scan(&[("a", "x=1\ny=1"), ("b", "x=2")]));
    assert_eq!(files.served(), ["default/x=1", "default/y=1"]);
    assert_eq!(files.errors(), ["a:1 duplicate-resource", "b:1 duplicate-resource"]);
    files.postponed(&scan(&[("a", "y=1"), ("b", "x=2")]));
    assert_eq!(files.served(), ["default/x=2", "default/y=1"]);
    assert!(files.errors().is_empty());
    // The old file goes first.
    files.postponed(&scan(&[("a", "y=1"), ("b", "z=1")]));
    assert_eq!(files.served(), ["default/x=2", "default/y=1", "default/z=1"]);
    assert!(files.postponed(&scan(&[("a", "y=1\nx=3"), ("b", "z=1")])).load.is_complete);
    assert_eq!(files.served(), ["default/x=3", "default/y=1", "default/z=1"]);
    // Moved and bad at once.
    files.due(&scan(&[("a", "y=1"), ("b", "z=1\nx!")]));
    assert_eq!(files.served(), ["default/x=3", "default/y=1", "default/z=1"]);
}

#[test]
fn the_owner_of_a_duplicate_keeps_it_and_both_files_name_both_places() {
    let mut files = Files::loaded(&[("b", "x=1")]);
    files.due(&scan(&[("a", "y=1\nx=9"), ("b", "x=2")]));
    assert_eq!(files.served(), ["default/x=2", "default/y=1"]);
    let status = &files.last.as_ref().unwrap().load.files;
    for (path, other) in [("a", "b:1:1"), ("b", "a:2:1")] {
        let found = status[path].diagnostics[0].to_string();
        assert!(found.contains(other) && found.contains("b came first") == (path == "a"), "{found}");
    }
}

#[test]
fn of_new_duplicates_none_is_served() {
    let mut files = Files { is_partial_start: true, ..Files::default() };
    files.due(&scan(&[("a", "x=1\ny=1"), ("b", "x=1")]));
    assert_eq!(files.served(), ["default/y=1"]);
    assert_eq!(files.errors(), ["a:1 duplicate-resource", "b:1 duplicate-resource"]);
    // In different groups, they are different objects.
    files.due(&scan(&[("a/1", "x=1"), ("b/1", "x=2\ngroup g")]));
    assert_eq!(files.served(), ["default/x=1", "g/x=2"]);
    assert!(files.errors().is_empty());
}

#[test]
fn what_was_served_stays_if_two_new_files_claim_it() {
    let mut files = Files::loaded(&[("a", "x=1")]);
    files.due(&scan(&[("b", "x=2"), ("c", "x=3")]));
    assert_eq!(files.served(), ["default/x=1"]);
    assert!(!files.last.as_ref().unwrap().postpones_removals);
    files.due(&scan(&[("c", "x=3")]));
    assert_eq!(files.served(), ["default/x=3"]);
}

#[test]
fn a_node_group_takes_its_directory_and_what_lies_below() {
    let files = Files::loaded(&[
        ("r/a", "x=0"),
        ("r/edge/group", "group edge"),
        ("r/edge/a", "x=1"),
        ("r/edge/deep/er/a", "y=1"),
        ("r/edge/deep/inner/g", "group inner\nx=2"),
        ("r/edgeless/a", "z=0"),
    ]);
    assert_eq!(files.served(), ["default/x=0", "default/z=0", "edge/x=1", "edge/y=1", "inner/x=2"]);
    let layer = &files.last.as_ref().unwrap().load.layer;
    let definition = |name: &str| layer.groups[&GroupName::new(name).unwrap()].definition.clone();
    assert_eq!(definition("edge"), Some(group_of("edge")));
    assert_eq!(definition("default"), None);
}

#[test]
fn a_changed_selector_counts_at_once_and_a_bad_group_keeps_its_last_good_one() {
    let mut files = Files::loaded(&[("e/g", "group edge one"), ("e/a", "x=1")]);
    let definition = |files: &Files| files.state.definitions.values().cloned().collect::<Vec<_>>();
    files.postponed(&scan(&[("e/g", "group edge two"), ("e/a", "x=1")]));
    assert_eq!(definition(&files), [group_of("edge two")]);
    for bad in ["group!", "<", "", "?"] {
        files.due(&scan(&[("e/g", bad), ("e/a", "x=2")]));
        assert_eq!(definition(&files), [group_of("edge two")], "{bad}");
        assert_eq!(files.served(), ["edge/x=2"], "{bad}");
    }
}

#[test]
fn files_of_a_group_that_never_was_good_go_to_nobody() {
    let mut files = Files { is_partial_start: true, ..Files::default() };
    files.due(&scan(&[("e/g", "group!"), ("e/a", "x=1"), ("a", "y=1")]));
    assert_eq!(files.served(), ["default/y=1"]);
    assert_eq!(files.errors(), ["e/a:1 unknown-group", "e/g:1 bad"]);
}

#[test]
fn a_group_that_is_renamed_or_removed_is_made_before_the_old_one_breaks() {
    let mut files = Files::loaded(&[("e/g", "group old"), ("e/a", "x=1")]);
    files.postponed(&scan(&[("e/g", "group new"), ("e/a", "x=1")]));
    assert_eq!(files.served(), ["new/x=1", "old/x=1"]);
    assert_eq!(files.state.definitions.len(), 2, "the old group keeps its selector");
    files.due(&scan(&[("e/g", "group new"), ("e/a", "x=1")]));
    assert_eq!(files.served(), ["new/x=1"]);
    assert_eq!(files.state.definitions.len(), 1);
    // Without its node group a directory would be everybody's: that waits, too.
    assert!(files.postponed(&scan(&[("e/a", "x=2")])).postpones_removals);
    assert_eq!(files.served(), ["new/x=2"]);
    files.due(&scan(&[("e/a", "x=2")]));
    assert_eq!(files.served(), ["default/x=2"]);
}

#[test]
fn a_directory_has_one_node_group() {
    let mut files = Files::loaded(&[("e/g", "group edge"), ("e/a", "x=1")]);
    files.due(&scan(&[("e/g", "group edge"), ("e/h", "group other"), ("e/a", "x=2")]));
    assert_eq!(files.served(), ["edge/x=2"]);
    assert_eq!(files.errors(), ["e/g:1 two-node-groups", "e/h:1 two-node-groups"]);
    let mut files = Files { is_partial_start: true, ..Files::default() };
    files.due(&scan(&[("e/g", "group edge\ngroup other"), ("e/a", "x=1")]));
    assert_eq!(files.served(), Vec::<String>::new());
    assert_eq!(files.errors(), ["e/a:1 unknown-group", "e/g:1 two-node-groups", "e/g:2 two-node-groups"]);
}

#[test]
fn a_group_has_one_directory_and_may_move() {
    let mut files = Files::loaded(&[("e/g", "group edge"), ("e/a", "x=1")]);
    files.due(&scan(&[("e/g", "group edge"), ("e/a", "x=1"), ("f/g", "group edge"), ("f/a", "y=1")]));
    assert_eq!(files.served(), ["edge/x=1"]);
    let errors = ["e/g:1 duplicate-node-group", "f/a:1 unknown-group", "f/g:1 duplicate-node-group"];
    assert_eq!(files.errors(), errors);
    let mut files = Files::loaded(&[("e/g", "group edge"), ("e/a", "x=1")]);
    files.postponed(&scan(&[("f/g", "group edge"), ("f/a", "x=2")]));
    assert_eq!(files.served(), ["edge/x=2"]);
    files.due(&scan(&[("f/g", "group edge"), ("f/a", "x=2")]));
    assert_eq!(files.served(), ["edge/x=2"]);
    assert!(files.errors().is_empty());
}

#[test]
fn the_default_group_cannot_be_changed() {
    let mut files = Files { is_partial_start: true, ..Files::default() };
    files.due(&scan(&[("e/g", "group default"), ("e/a", "x=1")]));
    assert_eq!(files.errors(), ["e/a:1 unknown-group", "e/g:1 default-group"]);
    assert_eq!(files.served(), Vec::<String>::new());
}

#[test]
fn what_is_below_a_fault_keeps_its_state() {
    let mut files =
        Files::loaded(&[("r/a", "x=1"), ("r/e/g", "group edge"), ("r/e/a", "y=1"), ("s/a", "z=1")]);
    let mut vanished = scan(&[("s/a", "z=2")]);
    vanished.faults.insert("r".into(), "gone".to_owned());
    files.due(&vanished);
    assert_eq!(files.served(), ["default/x=1", "default/z=2", "edge/y=1"]);
    assert_eq!(files.errors(), ["r:0 unreadable-path"]);
    assert!(files.last.as_ref().unwrap().load.files["r"].is_last_good);
    let mut fault = scan(&[("r/a", "x=1"), ("s/a", "z=2")]);
    fault.files.insert("s/a".into(), Err(FileFault::Unreadable("permission denied".to_owned())));
    files.due(&fault);
    assert_eq!(files.served(), ["default/x=1", "default/z=2"]);
    assert_eq!(files.errors(), ["s/a:0 unreadable-file"]);
}

#[test]
fn pitfall_48_nothing_is_complete_before_one_clean_load() {
    let mut files = Files::default();
    for bad in [scan(&[("a", "x=1"), ("b", "<")]), scan(&[("a", "x!")]), Scan::default()] {
        let mut bad = bad;
        if bad.files.is_empty() {
            bad.faults.insert("r".into(), "gone".to_owned());
        }
        files.due(&bad);
        assert!(!files.is_complete());
    }
    files.due(&scan(&[("a", "x=1")]));
    assert!(files.is_complete());
    files.due(&scan(&[("a", "<")]));
    assert!(files.is_complete());
}

#[test]
fn a_partial_start_serves_the_good_part_if_there_is_one() {
    let mut files = Files { is_partial_start: true, ..Files::default() };
    let mut vanished = Scan { is_settled: true, ..Scan::default() };
    vanished.faults.insert("r".into(), "gone".to_owned());
    files.due(&vanished);
    assert!(!files.is_complete());
    files.due(&scan(&[("a", "<"), ("b", "x=1")]));
    assert!(files.is_complete());
    assert_eq!(files.served(), ["default/x=1"]);
}

#[test]
fn last_good_contents_survive_a_restart() {
    let mut files =
        Files::loaded(&[("r/a", "x=1\ny=1"), ("r/e/g", "group edge sel\nz=1"), ("r/gone", "w=1")]);
    files.due(&scan(&[("r/a", "x=2\ny!"), ("r/e/g", "group edge sel\nz=1"), ("r/gone", "w=1")]));
    let mut after = files.restarted();
    after.due(&scan(&[("r/a", "<"), ("r/e/g", "group!\nz!"), ("r/new", "<")]));
    assert_eq!(after.served(), ["default/x=2", "default/y=1", "edge/z=1"]);
    assert!(after.is_complete());
    assert_eq!(after.state.definitions.values().cloned().collect::<Vec<_>>(), [group_of("edge sel")]);
    // The owner of a duplicate is still the owner, and a root that is away keeps what it had.
    let mut after = files.restarted();
    after.due(&scan(&[("r/a", "x=3"), ("r/0", "x=9")]));
    assert_eq!(after.served(), ["default/x=3"]);
    let mut after = files.restarted();
    let mut vanished = Scan { is_settled: true, ..Scan::default() };
    vanished.faults.insert("r".into(), "gone".to_owned());
    after.due(&vanished);
    assert_eq!(after.served(), files.served());
}

#[test]
fn only_what_changed_is_saved_again() {
    let mut files = Files::loaded(&[("a", "x=1"), ("b", "y=1")]);
    let before = files.state.clone();
    files.due(&scan(&[("a", "x=1"), ("c", "z=1")]));
    let changed = persist::changed_copies(&before, &files.state);
    let changed: Vec<_> = changed.iter().map(|(path, copy)| (&**path, copy.is_some())).collect();
    assert_eq!(changed, [("b", false), ("c", true)]);
}

#[test]
fn equal_contents_are_decoded_once() {
    let files = Files::loaded(&[("a", "x=1")]);
    let options =
        Options { removals: Removals::Due, is_partial_start: false, unknown_fields: UnknownFields::Refuse };
    let again =
        load(&files.state, &scan(&[("a", "x=1")]), options, UNIX_EPOCH, |_, _| panic!("decoded again"));
    assert_eq!(again.load.layer, files.last.as_ref().unwrap().load.layer);
}

#[test]
fn several_files_at_a_time_give_the_same_as_one_after_the_other() {
    let broken = |n: usize| (n % 7 == 3).then(|| "<".to_owned());
    let text = |n: usize| {
        let bad = if n.is_multiple_of(3) { format!("bad{n}!\n") } else { String::new() };
        broken(n).unwrap_or_else(|| format!("c{n}=1\n{bad}shared=1\nc{}=2\n", n + 1))
    };
    let texts: Vec<_> = (0..40).map(|n| (format!("{}/f{n:02}", n % 4), text(n))).collect();
    let mut files = scan(&texts.iter().map(|(path, text)| (&**path, &**text)).collect::<Vec<_>>());
    let node_group = FileContent::new(b"group g\n");
    files.files.insert("2/group".into(), Ok(node_group));
    let options =
        Options { removals: Removals::Due, is_partial_start: true, unknown_fields: UnknownFields::Refuse };
    let load = |bounds| load_within(bounds, &FilesState::default(), &files, options, UNIX_EPOCH, decode);
    let of_one = load(Bounds { n_threads: 1, n_bytes: 10 });
    assert!(of_one.load.files.values().filter(|file| !file.diagnostics.is_empty()).count() > 20);
    for n_bytes in [1, 60, 10_000] {
        let of_many = load(Bounds { n_threads: 8, n_bytes });
        assert_eq!(format!("{:?}", of_many.state), format!("{:?}", of_one.state));
        assert_eq!(of_many.load.layer, of_one.load.layer);
        assert_eq!(format!("{:?}", of_many.load.files), format!("{:?}", of_one.load.files));
        assert_eq!(of_many.load.unusable, of_one.load.unusable);
    }
}

#[test]
fn a_file_that_is_at_fault_itself_shows_it() {
    let mut files = Files::loaded(&[("r/a", "x=1")]);
    let mut dangling = scan(&[]);
    dangling.faults.insert("r/a".into(), "there is no such file or directory".to_owned());
    files.due(&dangling);
    assert_eq!(files.served(), ["default/x=1"]);
    assert_eq!(files.errors(), ["r/a:0 unreadable-path"]);
}

#[test]
fn pitfall_46_files_formats_and_the_order_of_keys_make_no_difference() {
    let layer = |files: &[(&str, &str)]| {
        let options = Options {
            removals: Removals::Due,
            is_partial_start: false,
            unknown_fields: UnknownFields::Refuse,
        };
        let loaded = load(&FilesState::default(), &scan(files), options, UNIX_EPOCH, |path, content| {
            codec().decode_file(path, &content.bytes, &Limits::default())
        });
        assert!(loaded.load.is_complete, "{:?}", loaded.load.files);
        loaded.load.layer
    };
    let at = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let a = "name: a, type: STATIC, metadata: {filter_metadata: {x: {k: 1}, y: {l: 2, m: 3}}}";
    let a_reversed = "metadata: {filter_metadata: {y: {m: 3, l: 2}, x: {k: 1}}}, type: STATIC, name: a";
    let one = layer(&[("a.yaml", &format!("resources: [{{{at}, {a}}}, {{{at}, name: b}}]\n"))]);
    let b = r#"{"name": "b", "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster"}"#;
    let many = layer(&[("z.yaml", &format!("# a comment\n---\n{{{a_reversed}, {at}}}\n")), ("y/b.json", b)]);
    assert_eq!(one.n_resources(), 2);
    let said = |layer: &Layer| -> Vec<_> {
        let groups = layer.groups.iter();
        let all =
            groups.flat_map(|(name, group)| group.resources.values().map(move |one| (name.clone(), one)));
        all.map(|(name, one)| (name, one.key().clone(), one.version())).collect()
    };
    assert_eq!(said(&one), said(&many));
}
