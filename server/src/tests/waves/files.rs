//! Diagnostics at the files of a wave deployment.

use xds_codec::{Diagnostic, Severity};

use super::super::documents::files;
use super::*;

fn waves_at(server: &Server, path: &str) -> Vec<Diagnostic> {
    let files = server.control.files();
    let found = files.get(path).map(|file| file.diagnostics.clone()).unwrap_or_default();
    found.into_iter().filter(|one| one.code.starts_with("wave-")).collect()
}

fn open(store: &Arc<MemoryStore>, policy: WavePolicy) -> Server {
    let options = Options { watches_files: true, waves: Some(policy), ..Options::default() };
    Server::open(Arc::clone(store) as Arc<dyn Store>, options).following_waves()
}

/// The diagnostics in words: severity, code, line, and that each of these texts is in it.
fn assert_told(found: &[Diagnostic], severity: Severity, code: &str, line: u32, texts: &[&str]) {
    let [one] = found else { panic!("one diagnostic: {found:?}") };
    assert_eq!((one.severity, one.code, one.place.line), (severity, code, line), "{one}");
    for text in texts {
        assert!(one.message.contains(text), "{text:?} in {one}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_tells_that_not_everyone_is_served_what_it_says() {
    let store = MemoryStore::new();
    let mut careful = policy("10%", 5);
    careful.ack_timeout = Some(Duration::from_secs(30));
    let server = open(&store, careful.clone());
    let load_with = async |server: &Server, content: &[(&str, &str)]| {
        server.control.load_files(load(&[("default", content)])).await.unwrap();
    };
    load_with(&server, &[("a", "1"), ("b", "1")]).await;
    let mut fleet = Fleet::connect(&server, N_CLIENTS);
    assert_eq!(waves_at(&server, "routes/a.yaml"), []);

    load_with(&server, &[("a", "1"), ("b", "2")]).await;
    let id = newest(&server).unwrap().deployment;
    let n_ahead = fleet.expected(id, "10%").len().to_string();
    let texts = ["default/clusters/b", "10% of its nodes", &n_ahead, &format!("/v1/waves/{id}"), ":abort"];
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Info, "wave-under-way", 2, &texts);
    // Nobody answers.
    fleet.until_paused(&server).await;
    let texts = ["10% of its nodes", "have not answered in time", ":resume"];
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Warning, "wave-paused", 2, &texts);
    let bad = fleet.expected(id, "10%")[0].clone();
    fleet.reject(std::slice::from_ref(&bad), Some("2"));
    fleet.until_phase(&server, WavePhase::Held).await;
    let told = format!("{bad} cannot take it");
    let texts = ["served to nobody", "default/clusters/b", &told, "change the file again", ":resume"];
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Error, "wave-put-back", 2, &texts);

    // Also after a restart, and where the object is by then.
    drop((server, fleet));
    let server = open(&store, careful);
    let moved = load_at(&[("default", &[("a", "1"), ("b", "2")])], 40);
    server.control.load_files(moved).await.unwrap();
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Error, "wave-put-back", 41, &texts);
    // Once the file says what is served, there is nothing to tell.
    load_with(&server, &[("a", "1"), ("b", "1")]).await;
    assert_eq!(waves_at(&server, "routes/a.yaml"), []);
}

#[tokio::test(start_paused = true)]
async fn what_a_file_does_not_say_any_more_is_told_there_too() {
    let store = MemoryStore::new();
    let server = open(&store, policy("10%", 60));
    server.control.load_files(load(&[("default", &[("a", "1"), ("gone", "1")])])).await.unwrap();
    server.control.load_files(load(&[("default", &[("a", "1")])])).await.unwrap();
    let id = newest(&server).unwrap().deployment;
    let texts = ["default/clusters/gone", "10% of its nodes"];
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Info, "wave-under-way", 0, &texts);
    // The file itself goes.
    let nothing = FileLoad { files: BTreeMap::new(), ..load(&[("default", &[("a", "1")])]) };
    server.control.load_files(nothing).await.unwrap();
    server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    let texts = ["default/clusters/gone", "served to nobody", "aborted by me"];
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Error, "wave-put-back", 0, &texts);
    assert!(server.control.files()["routes/a.yaml"].is_last_good);
    drop(server);
    let server = open(&store, policy("10%", 60));
    server.control.load_files(load(&[("default", &[("a", "1")])])).await.unwrap();
    assert_told(&waves_at(&server, "routes/a.yaml"), Severity::Error, "wave-put-back", 0, &texts);
}

#[tokio::test(start_paused = true)]
async fn a_forced_write_lets_nothing_pass_that_was_put_back() {
    let server = open(&MemoryStore::new(), policy("10%", 60));
    server.control.load_files(load(&[("default", &[("a", "1"), ("b", "1")])])).await.unwrap();
    server.control.load_files(load(&[("default", &[("a", "bad"), ("b", "bad")])])).await.unwrap();
    let mut fleet = Fleet::connect(&server, N_CLIENTS);
    let at_once = WriteOptions { force: true, waves: WaveChoice::AtOnce, ..WriteOptions::default() };
    server.control.write(put("default", "a", "over"), at_once.clone()).await.unwrap();
    fleet.pump(&server);
    assert_eq!((fleet.with("a", "over").len(), fleet.with("b", "1").len()), (N_CLIENTS, N_CLIENTS));
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Held);
    // Only one that begins a wave deployment itself takes its place.
    let forced = WriteOptions { waves: WaveChoice::By(policy("20%", 60)), ..at_once };
    server.control.write(put("default", "c", "1"), forced).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("b", "bad").len(), N_CLIENTS);
    let told: Vec<_> = server.control.waves().iter().map(|one| one.phase).collect();
    assert_eq!(told, [WavePhase::Progressing, WavePhase::Superseded]);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_of_one_file_is_bounded() {
    let server = open(&MemoryStore::new(), policy("10%", 60));
    let names: Vec<String> = (0..150).map(|n| format!("c{n}")).collect();
    let all = |text: &'static str| names.iter().map(|name| (name.as_str(), text)).collect::<Vec<_>>();
    server.control.load_files(load(&[("default", &all("1"))])).await.unwrap();
    server.control.load_files(load(&[("default", &all("2"))])).await.unwrap();
    let found = waves_at(&server, "routes/a.yaml");
    assert_eq!(found.len(), 100);
    assert!(found[99].message.ends_with("; and 50 more objects of the file"), "{}", found[99]);
}

#[tokio::test(start_paused = true)]
async fn a_file_is_not_told_to_be_gone_before_its_load_is_done() {
    let store = MemoryStore::new();
    let service = |port: u16| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{ports: [{{port: {port}}}]}}\n"
        );
        files(&[("r/a.yaml", &text)])
    };
    open(&store, policy("10%", 60)).control.load_files(service(80)).await.unwrap();
    let server = open(&store, policy("10%", 60));
    let (control, changed) = (server.control.clone(), service(81));
    let loading = tokio::spawn(async move { control.load_files(changed).await });
    while !loading.is_finished() {
        assert!(server.control.files().values().all(|file| !file.is_last_good));
        tokio::task::yield_now().await;
    }
    loading.await.unwrap().unwrap();
    assert_eq!(waves_at(&server, "r/a.yaml").len(), 1);
}
