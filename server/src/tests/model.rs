//! Random sequences of writes, loads and restarts against a model that consists of maps.

use proptest::prelude::*;

use super::*;

const GROUPS: [&str; 3] = ["default", "g", "h/1"];
const NAMES: [&str; 3] = ["a", "b", "c"];

type Content = BTreeMap<String, String>;

#[derive(Clone, Debug)]
enum Step {
    Replace(usize, Vec<(usize, u8)>),
    Put(usize, usize, u8),
    Delete(usize, usize),
    DeleteGroup(usize),
    Load(Vec<(usize, u8)>),
    Rollback(usize),
    Restart,
}

/// The API's part, by group; a group that is there may be empty.
type Owned = BTreeMap<String, Content>;

#[derive(Clone, Debug, Default)]
struct Model {
    owned: Owned,
    /// The contents of the default group in the files.
    files: Content,
    /// The API's part at each revision.
    history: Vec<Owned>,
}

impl Model {
    /// Returns `true` if the change makes a revision.
    fn change(&mut self, owned: Owned) -> bool {
        let changed = owned != self.owned;
        self.owned = owned;
        if changed {
            self.history.push(self.owned.clone());
        }
        changed
    }

    /// Does the step; false if it must be refused.
    fn step(&mut self, step: &Step) -> bool {
        let mut owned = self.owned.clone();
        match step {
            Step::Replace(g, content) => {
                _ = owned.insert(GROUPS[*g].to_owned(), to_content(content));
            }
            Step::Put(g, name, text) => {
                let group = owned.entry(GROUPS[*g].to_owned()).or_default();
                group.insert(NAMES[*name].to_owned(), text.to_string());
            }
            Step::Delete(g, name) => {
                let gone = owned.get_mut(GROUPS[*g]).and_then(|group| group.remove(NAMES[*name]));
                if gone.is_none() {
                    return false;
                }
            }
            Step::DeleteGroup(g) => {
                if *g == 0 || owned.remove(GROUPS[*g]).is_none() {
                    return false;
                }
            }
            Step::Load(content) => return self.load(to_content(content)),
            Step::Rollback(back) => {
                owned.clone_from(&self.history[self.history.len() - 1 - back.min(&(self.history.len() - 1))]);
            }
            Step::Restart => return true,
        }
        // The default group is always there, so an empty one is nothing that the API owns.
        if owned.get("default").is_some_and(BTreeMap::is_empty) {
            owned.remove("default");
        }
        self.change(owned);
        true
    }

    fn load(&mut self, files: Content) -> bool {
        if files == self.files {
            return true;
        }
        let before = std::mem::replace(&mut self.files, files.clone());
        if let Some(default) = self.owned.get_mut("default") {
            default.retain(|name, text| files.get(name) != Some(text) || before.get(name) == Some(text));
        }
        if self.owned.get("default").is_some_and(BTreeMap::is_empty) {
            self.owned.remove("default");
        }
        self.history.push(self.owned.clone());
        true
    }

    fn served(&self, name: &str) -> Content {
        let mut served = self.files.clone();
        for group in ["default", name] {
            served.extend(self.owned.get(group).cloned().unwrap_or_default());
        }
        served
    }
}

fn to_content(content: &[(usize, u8)]) -> Content {
    content.iter().map(|(name, text)| (NAMES[*name].to_owned(), text.to_string())).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = || prop::collection::vec((0..NAMES.len(), 0..3_u8), 0..3);
    let step = prop_oneof![
        2 => (0..GROUPS.len(), content()).prop_map(|(g, content)| Step::Replace(g, content)),
        4 => (0..GROUPS.len(), 0..NAMES.len(), 0..3_u8).prop_map(|(g, name, text)| Step::Put(g, name, text)),
        2 => (0..GROUPS.len(), 0..NAMES.len()).prop_map(|(g, name)| Step::Delete(g, name)),
        1 => (0..GROUPS.len()).prop_map(Step::DeleteGroup),
        3 => content().prop_map(Step::Load),
        1 => (0..4_usize).prop_map(Step::Rollback),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..12)
}

fn as_pairs(content: &[(usize, u8)]) -> Vec<(&'static str, String)> {
    content.iter().map(|(name, text)| (NAMES[*name], text.to_string())).collect()
}

async fn run(steps: &[Step]) {
    let store = MemoryStore::new();
    let mut server = Server::with_files(&store);
    let mut model = Model { history: vec![Owned::new()], ..Model::default() };
    load_content(&server, &[]).await;
    // Even no files at all are a first load with a content of its own.
    model.history.push(Owned::new());
    for step in steps {
        let before = model.history.len();
        let is_taken = match step {
            Step::Replace(g, content) => {
                let content = as_pairs(content);
                let content: Vec<_> = content.iter().map(|(name, text)| (*name, text.as_str())).collect();
                server.write(replace(GROUPS[*g], &content)).await.is_ok()
            }
            Step::Put(g, name, text) => {
                server.write(put(GROUPS[*g], NAMES[*name], &text.to_string())).await.is_ok()
            }
            Step::Delete(g, name) => server.write(delete(GROUPS[*g], NAMES[*name])).await.is_ok(),
            Step::DeleteGroup(g) => server.write(Write::DeleteGroup(group(GROUPS[*g]))).await.is_ok(),
            Step::Load(content) => {
                load_content(&server, content).await;
                true
            }
            Step::Rollback(back) => {
                let to = before - 1 - back.min(&(before - 1));
                server.write(rollback(to as u64)).await.is_ok()
            }
            Step::Restart => {
                let files: Vec<_> = model.files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
                server = Server::with_files(&store);
                server.control.load_files(load(&[("default", &files)])).await.unwrap();
                true
            }
        };
        assert_eq!(is_taken, model.step(step), "{step:?} in {steps:?}");
        assert_eq!(server.revision() as usize, model.history.len() - 1, "{step:?} in {steps:?}");
        for name in GROUPS {
            assert_eq!(server.served(name), model.served(name), "{name} after {step:?} in {steps:?}");
        }
    }
}

async fn load_content(server: &Server, content: &[(usize, u8)]) {
    let content = to_content(content);
    let content: Vec<_> = content.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    server.control.load_files(load(&[("default", &content)])).await.unwrap();
}

proptest! {
    #[test]
    fn the_control_is_what_its_changes_say(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(&steps));
    }
}
