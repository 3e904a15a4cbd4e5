//! Real files and a real kernel: what is published is waited for, never slept for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use xds_cache::Revision;

use super::*;

/// A watched directory `root` in a directory of its own, and everything that was delivered.
struct World {
    dir: TempDir,
    handle: Option<FileSourceHandle>,
    deliveries: watch::Receiver<Vec<FileLoad>>,
    task: JoinHandle<Result<(), SourceFailed>>,
}

/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn timing() -> Timing {
    // No poll within a test: what is seen, the kernel told.
    Timing::with_poll_interval(Duration::from_secs(600))
}

impl World {
    async fn start() -> Self {
        Self::start_in(dir_with_a_file(), timing()).await
    }

    async fn start_in(dir: TempDir, timing: Timing) -> Self {
        let mut world = Self::start_with(dir, timing, |_| Box::pin(async { Ok(()) }));
        world.wait("the first load", |load| load.is_complete).await;
        world
    }

    /// `answer` is asked for each delivery, which it is given the number of, from 1.
    fn start_with(
        dir: TempDir,
        timing: Timing,
        answer: impl Fn(u64) -> BoxFuture<'static, Result<(), WriteError>> + Send + 'static,
    ) -> Self {
        let parts = WatchParts {
            is_for_all: false,
            roots: vec![dir.path().join("root")],
            limits: Limits::default(),
            // The test of chains of links has some outside.
            follows_links: true,
            is_partial_start: false,
            unknown_fields: UnknownFields::Refuse,
            timing,
            codec: codec(),
            last_good: LastGood::open(&dir.path().join("good")).unwrap(),
        };
        let (source, handle) =
            FileSource::open(parts, Box::new(|failure| assert_eq!(failure, None))).unwrap();
        let (sender, deliveries) = watch::channel(Vec::new());
        let deliver: Deliver = Box::new(move |load, _| {
            sender.send_modify(|loads: &mut Vec<FileLoad>| loads.push(load));
            let revision = Revision(sender.borrow().len() as u64);
            let outcome = ReloadOutcome { revision, difference: vec![], n_errors: 0, unconfirmed: None };
            let answered = answer(revision.0);
            Box::pin(async move { answered.await.map(|()| outcome) })
        });
        let task = tokio::spawn(source.run(deliver));
        Self { dir, handle: Some(handle), deliveries, task }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Waits until the newest delivery is as wanted.
    async fn wait(&mut self, what: &str, is_wanted: impl Fn(&FileLoad) -> bool) -> Duration {
        let began = Instant::now();
        let found = self.deliveries.wait_for(|loads| loads.last().is_some_and(&is_wanted));
        if !matches!(timeout(PATIENCE, found).await, Ok(Ok(_))) {
            panic!("{what}: {:?}", self.deliveries.borrow().last());
        }
        began.elapsed()
    }

    async fn wait_for(&mut self, name: &str, value: u32) -> Duration {
        self.wait(&format!("{name} = {value}"), |load| value_of(load, name) == Some(value)).await
    }

    fn n_deliveries(&self) -> usize {
        self.deliveries.borrow().len()
    }

    /// Returns `true` if any delivery since `from` lacked `name`.
    fn was_missing(&self, name: &str, from: usize) -> bool {
        self.deliveries.borrow().iter().skip(from).any(|load| value_of(load, name).is_none())
    }

    /// Stops, and gives the directory for another start.
    async fn stop(mut self) -> TempDir {
        drop(self.handle.take());
        timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
        self.dir
    }
}

fn codec() -> Arc<Codec> {
    static CODEC: std::sync::OnceLock<Arc<Codec>> = std::sync::OnceLock::new();
    Arc::clone(CODEC.get_or_init(|| Arc::new(Codec::new().unwrap())))
}

/// A cluster whose timeout is the value.
fn text(name: &str, value: u32) -> String {
    format!(
        "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: {name}\n  \
         type: STATIC\n  connect_timeout: {}s\n  alt_stat_name: v{value}\n",
        value + 1
    )
}

fn value_of(load: &FileLoad, name: &str) -> Option<u32> {
    let resources = load.layer.groups.values().flat_map(|group| group.resources.values());
    let resource = resources.into_iter().find(|resource| &**resource.name() == name)?;
    codec().to_json(resource)["alt_stat_name"].as_str()?.strip_prefix('v')?.parse().ok()
}

fn write_by_rename(path: &Path, content: &str) {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content).unwrap();
    fs::rename(temporary, path).unwrap();
}

fn dir_with_a_file() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("root/a.yaml"), text("a", 0)).unwrap();
    dir
}

#[tokio::test]
async fn a_load_that_was_not_taken_is_offered_again_though_no_file_changes() {
    let answer = |n: u64| -> BoxFuture<'static, _> {
        Box::pin(
            async move { if n == 1 { Err(WriteError::Internal("injected".to_owned())) } else { Ok(()) } },
        )
    };
    let mut world = World::start_with(dir_with_a_file(), timing(), answer);
    let mut deliveries = world.deliveries.clone();
    timeout(PATIENCE, deliveries.wait_for(|loads| loads.len() == 2)).await.unwrap().unwrap();
    world.wait_for("a", 0).await;
    // A load that was taken is not offered again; a change is.
    write_by_rename(&world.root().join("a.yaml"), &text("a", 1));
    world.wait_for("a", 1).await;
    assert_eq!(world.n_deliveries(), 3);
}

#[tokio::test]
async fn changes_that_come_while_a_load_is_taken_are_one_load() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let answer = move |n: u64| -> BoxFuture<'static, _> {
        let waiting = Arc::clone(&waiting);
        Box::pin(async move {
            if n == 2 {
                waiting.acquire().await.unwrap().forget();
            }
            Ok(())
        })
    };
    let mut world = World::start_with(dir_with_a_file(), timing(), answer);
    world.wait_for("a", 0).await;
    let path = world.root().join("a.yaml");
    write_by_rename(&path, &text("a", 1));
    world.wait_for("a", 1).await;
    for value in 2..=500 {
        write_by_rename(&path, &text("a", value));
    }
    assert_eq!(world.n_deliveries(), 2, "the second is not taken yet");
    gate.add_permits(1);
    world.wait_for("a", 500).await;
    assert_eq!(world.n_deliveries(), 3);
}

#[tokio::test]
async fn pitfall_70_every_way_to_save_is_seen_every_time() {
    let mut world = World::start().await;
    let path = world.root().join("a.yaml");
    let mut slowest = Duration::ZERO;
    for value in 1..=100 {
        match value % 5 {
            0 => fs::write(&path, text("a", value)).unwrap(),
            1 => write_by_rename(&path, &text("a", value)),
            2 => {
                fs::remove_file(&path).unwrap();
                fs::write(&path, text("a", value)).unwrap();
            }
            3 => {
                // The whole directory is replaced by another one.
                let (root, new) = (world.root(), world.dir.path().join("new"));
                fs::create_dir(&new).unwrap();
                fs::write(new.join("a.yaml"), text("a", value)).unwrap();
                fs::rename(&root, world.dir.path().join("old")).unwrap();
                fs::rename(&new, &root).unwrap();
                fs::remove_dir_all(world.dir.path().join("old")).unwrap();
            }
            _ => {
                // Deleted and made anew, as `git checkout` does.
                fs::remove_dir_all(world.root()).unwrap();
                fs::create_dir(world.root()).unwrap();
                fs::write(&path, text("a", value)).unwrap();
            }
        }
        slowest = slowest.max(world.wait_for("a", value).await);
    }
    assert!(!world.was_missing("a", 0));
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[tokio::test]
async fn pitfall_70_a_config_map_swap_is_one_change_every_time() {
    let mut world = World::start().await;
    let root = world.root();
    fs::remove_file(root.join("a.yaml")).unwrap();
    let version = |value: u32| {
        let name = format!("..v{value}");
        fs::create_dir(root.join(&name)).unwrap();
        fs::write(root.join(&name).join("a.yaml"), text("a", value)).unwrap();
        fs::write(root.join(&name).join("b.yaml"), text("b", value)).unwrap();
        symlink(&name, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    version(1);
    for name in ["a.yaml", "b.yaml"] {
        symlink(Path::new("..data").join(name), root.join(name)).unwrap();
    }
    world.wait_for("b", 1).await;
    let from = world.n_deliveries();
    for value in 2..=40 {
        version(value);
        fs::remove_dir_all(root.join(format!("..v{}", value - 1))).unwrap();
        world.wait_for("b", value).await;
    }
    let deliveries = world.deliveries.borrow();
    assert!(deliveries.iter().skip(from).all(|load| value_of(load, "a") == value_of(load, "b")));
}

#[tokio::test]
async fn pitfall_71_a_file_that_is_truncated_and_then_written_is_never_empty() {
    let mut world = World::start().await;
    let path = world.root().join("a.yaml");
    for value in 1..=20 {
        fs::write(&path, "").unwrap();
        if value % 4 == 0 {
            // Even if somebody looks right then.
            let handle = world.handle.clone().unwrap();
            handle.reload(Asked::Plainly).await.unwrap();
        }
        fs::write(&path, text("a", value)).unwrap();
        world.wait_for("a", value).await;
    }
    assert!(!world.was_missing("a", 0));
}

#[tokio::test]
async fn pitfall_72_a_new_directory_is_watched_with_all_that_comes_into_it() {
    let mut world = World::start().await;
    for value in 1..=20 {
        let directory = world.root().join(format!("d{value}/e/f"));
        fs::create_dir_all(&directory).unwrap();
        let name = format!("n{value}");
        fs::write(directory.join("b.yaml"), text(&name, 0)).unwrap();
        world.wait_for(&name, 0).await;
        fs::write(directory.join("b.yaml"), text(&name, value)).unwrap();
        world.wait_for(&name, value).await;
    }
}

#[tokio::test]
async fn pitfall_73_500_files_rewritten_at_once_are_at_most_three_deliveries() {
    let mut world = World::start().await;
    let root = world.root();
    let write = |value: u32| {
        for n in 0..500 {
            fs::write(root.join(format!("f{n}.yaml")), text(&format!("f{n}"), value)).unwrap();
        }
    };
    let all_are =
        |value: u32| move |load: &FileLoad| (0..500).all(|n| value_of(load, &format!("f{n}")) == Some(value));
    write(1);
    world.wait("all files", all_are(1)).await;
    for value in 2..=3 {
        let from = world.n_deliveries();
        write(value);
        world.wait("all files again", all_are(value)).await;
        assert!(world.n_deliveries() - from <= 3, "{}", world.n_deliveries() - from);
    }
}

#[tokio::test]
async fn pitfall_73_continuous_writes_are_delivered_all_the_same() {
    let mut world = World::start().await;
    let path = world.root().join("a.yaml");
    let began = Instant::now();
    let mut value = 0;
    // Without the maximum delay, nothing would come before the writes end.
    while world.n_deliveries() < 4 {
        value += 1;
        write_by_rename(&path, &text("a", value));
        assert!(began.elapsed() < PATIENCE, "{} deliveries", world.n_deliveries());
        tokio::task::yield_now().await;
    }
    world.wait_for("a", value).await;
}

#[tokio::test]
async fn a_pull_that_takes_three_seconds_is_never_published_by_halves() {
    let mut world = World::start().await;
    for n in 0..6 {
        fs::write(world.root().join(format!("f{n}.yaml")), text(&format!("f{n}"), 0)).unwrap();
    }
    world.wait_for("f5", 0).await;
    let from = world.n_deliveries();
    // Everything goes first, then comes back bit by bit; the clock is what this test is about.
    for n in 0..6 {
        fs::remove_file(world.root().join(format!("f{n}.yaml"))).unwrap();
    }
    for n in 0..6 {
        sleep(Duration::from_millis(500)).await;
        fs::write(world.root().join(format!("f{n}.yaml")), text(&format!("f{n}"), 1)).unwrap();
    }
    world.wait_for("f5", 1).await;
    assert!((0..6).all(|n| !world.was_missing(&format!("f{n}"), from)));
    // An object that stays away goes.
    fs::remove_file(world.root().join("f0.yaml")).unwrap();
    let after = world.wait("the removal", |load| value_of(load, "f0").is_none()).await;
    assert!(after >= Duration::from_secs(2), "{after:?}");
    assert!(!world.was_missing("f1", from));
}

#[tokio::test]
async fn a_reload_waits_for_what_it_removes() {
    let mut world = World::start().await;
    fs::write(world.root().join("b.yaml"), text("b", 0)).unwrap();
    world.wait_for("b", 0).await;
    let began = Instant::now();
    fs::remove_file(world.root().join("b.yaml")).unwrap();
    let handle = world.handle.clone().unwrap();
    // It does not matter if the kernel has told of it by now.
    handle.reload(Asked::Plainly).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(world.deliveries.borrow().last().map(|load| value_of(load, "b")), Some(None));
}

#[tokio::test]
async fn a_poll_finds_what_the_kernel_does_not_tell() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("real"), text("a", 0)).unwrap();
    // The way leads through a link in a directory that is not watched.
    fs::create_dir(dir.path().join("links")).unwrap();
    symlink("../real", dir.path().join("links/link")).unwrap();
    symlink("../links/link", dir.path().join("root/a.yaml")).unwrap();
    let mut world = World::start_in(dir, Timing::with_poll_interval(Duration::from_millis(100))).await;
    for value in 1..=5 {
        fs::write(world.dir.path().join(format!("real{value}")), text("a", value)).unwrap();
        symlink(format!("../real{value}"), world.dir.path().join("links/new")).unwrap();
        fs::rename(world.dir.path().join("links/new"), world.dir.path().join("links/link")).unwrap();
        world.wait_for("a", value).await;
    }
}

#[tokio::test]
async fn a_root_that_vanishes_keeps_its_state_and_comes_back() {
    let mut world = World::start().await;
    for value in 1..=3 {
        fs::rename(world.root(), world.dir.path().join("away")).unwrap();
        let root = world.root().to_string_lossy().into_owned();
        world.wait("the error", |load| load.files.contains_key(&*root)).await;
        fs::write(world.dir.path().join("away/a.yaml"), text("a", value)).unwrap();
        fs::rename(world.dir.path().join("away"), world.root()).unwrap();
        world.wait_for("a", value).await;
    }
    assert!(!world.was_missing("a", 0));
}

#[tokio::test]
async fn last_good_contents_are_served_after_a_restart_with_a_broken_file() {
    let mut world = World::start().await;
    fs::write(world.root().join("b.yaml"), text("b", 7)).unwrap();
    world.wait_for("b", 7).await;
    let good = world.dir.path().join("good");
    wait_until(|| fs::read_dir(&good).unwrap().filter(|f| is_copy(f.as_ref().unwrap())).count() == 2).await;
    let dir = world.stop().await;
    fs::write(dir.path().join("root/b.yaml"), "resources: [").unwrap();
    let mut world = World::start_in(dir, timing()).await;
    world.wait_for("b", 7).await;
    world.wait_for("a", 0).await;
}

#[tokio::test]
async fn a_source_that_is_told_to_stop_ends_whoever_else_has_a_handle() {
    let world = World::start().await;
    let handle = world.handle.clone().unwrap();
    handle.stop().await;
    timeout(PATIENCE, world.task).await.unwrap().unwrap().unwrap();
    assert!(matches!(handle.reload(Asked::Plainly).await, Err(WriteError::Closed)));
    handle.look();
}

fn is_copy(entry: &fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|extension| extension == "copy")
}

async fn wait_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_cannot_be_saved_is_kept_for_another_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let copies = dir.path().join("good");
    let store = LastGood::open(&copies).unwrap();
    let due: Copies = (0..20).map(|n| (format!("{n}.yaml").into(), (n != 7).then(|| vec![n; 9]))).collect();
    fs::remove_dir(&copies).unwrap();
    let (failed, failure) = save_all(&store, due);
    assert_eq!(failed.len(), 20);
    assert!(failure.unwrap().contains("No such file"));
    fs::create_dir(&copies).unwrap();
    assert_eq!(save_all(&store, failed), (Copies::new(), None));
    assert_eq!(store.load_all().unwrap().copies.len(), 19);
}
