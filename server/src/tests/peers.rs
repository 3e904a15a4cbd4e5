//! Several servers on one store that ask each other, without a network between them: what all of them together say of their clients.

use std::collections::BTreeSet as Set;
use std::sync::{Mutex, Weak};

use serde_json::Value;
use tokio::time::{Duration, sleep};
use xds_api::ApiState;
use xds_control::BoxFuture;
use xds_control::peers::{Answer, ForgetError, Peers, Question, Reached, Replica, Status};

use super::acked::AckingClient;
use super::rest::{JSON, Reply, Rest};
use super::*;

/// The others as one server reaches them.
#[derive(Debug)]
struct Others {
    own: &'static str,
    world: Weak<World>,
}

/// What there is between the servers.
#[derive(Debug, Default)]
struct World {
    states: Mutex<BTreeMap<&'static str, ApiState>>,
    silent: Mutex<Set<&'static str>>,
    /// Those that vanished, and whether the grace is over.
    gone: Mutex<BTreeMap<&'static str, bool>>,
    /// Those that take themselves for the leader.
    leaders: Mutex<Set<&'static str>>,
    is_store_away: std::sync::atomic::AtomicBool,
}

/// What a server says of itself.
fn status(world: &World, id: &str) -> Status {
    let states = world.states.lock().unwrap();
    let fingerprint = states.get(id).map(|state| state.control.fingerprint());
    Status { fingerprint: fingerprint.map(|(revision, sum)| (revision.0, sum)), ..Status::default() }
}

impl Peers for Others {
    fn replicas(&self) -> Vec<Replica> {
        let Some(world) = self.world.upgrade() else { return vec![] };
        let gone = world.gone.lock().unwrap();
        let replica = |id: &&'static str| Replica {
            id: (*id).to_owned(),
            is_own: *id == self.own,
            leads: world.leaders.lock().unwrap().contains(id),
            follows: false,
            peer: None,
            release: "1".to_owned(),
            started: SystemTime::UNIX_EPOCH,
            reached: match gone.get(id) {
                Some(is_over) => Reached::Gone { since: SystemTime::UNIX_EPOCH, is_over: *is_over },
                None => Reached::Yes(status(&world, id)),
            },
        };
        let ids: Vec<&'static str> = world.states.lock().unwrap().keys().copied().collect();
        ids.iter().map(replica).collect()
    }

    fn is_linked(&self) -> bool {
        true
    }

    fn leads(&self) -> bool {
        self.world.upgrade().is_some_and(|world| world.leaders.lock().unwrap().contains(self.own))
    }

    fn look(&self) -> BoxFuture<'_, Result<(), String>> {
        let is_away = |world: Arc<World>| world.is_store_away.load(std::sync::atomic::Ordering::SeqCst);
        let is_away = self.world.upgrade().is_some_and(is_away);
        Box::pin(async move { if is_away { Err("no member answers".to_owned()) } else { Ok(()) } })
    }

    fn ask(
        &self,
        id: String,
        question: Question,
        patience: Duration,
    ) -> BoxFuture<'_, Result<Answer, String>> {
        Box::pin(async move {
            let silent = format!("it did not answer within {patience:?}");
            let Some(world) = self.world.upgrade() else { return Err(silent) };
            let is_silent = world.silent.lock().unwrap().contains(id.as_str())
                || world.gone.lock().unwrap().contains_key(id.as_str());
            let state = world.states.lock().unwrap().get(id.as_str()).cloned().filter(|_| !is_silent);
            let Some(state) = state else {
                sleep(patience).await;
                return Err(silent);
            };
            // As if it came over the wire.
            let question = serde_json::from_slice(&serde_json::to_vec(&question).unwrap()).unwrap();
            let answer = xds_api::answer_peer(&state, question).await?;
            Ok(serde_json::from_slice(&serde_json::to_vec(&answer).unwrap()).unwrap())
        })
    }

    fn forget(&self, id: String) -> BoxFuture<'_, Result<(), ForgetError>> {
        Box::pin(async move {
            let Some(world) = self.world.upgrade() else { return Err(ForgetError::Unknown(id)) };
            let known = world.states.lock().unwrap().keys().copied().find(|known| *known == id);
            let Some(known) = known else { return Err(ForgetError::Unknown(id)) };
            world.gone.lock().unwrap().remove(known).map(drop).ok_or(ForgetError::Alive(id))?;
            world.states.lock().unwrap().remove(known);
            Ok(())
        })
    }
}

/// Three servers, `a`, `b` and `c`.
pub(super) struct Three {
    world: Arc<World>,
    pub(super) rests: [Rest; 3],
    pub(super) store: Arc<MemoryStore>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Three {
    fn new() -> Self {
        Self::with(Options::default())
    }

    /// Servers that ask each other, of which `a` leads.
    pub(super) fn linked() -> Self {
        let three = Self::with(Options { sharing: Sharing::Linked, ..Options::default() });
        three.lead(&["a"]);
        three
    }

    fn with(options: Options) -> Self {
        Self::with_each([(); 3].map(|()| options.clone()))
    }

    fn with_each(options: [Options; 3]) -> Self {
        let (store, world) = (MemoryStore::new(), Arc::<World>::default());
        let mut tasks = tokio::task::JoinSet::new();
        let mut options = options.into_iter();
        let rests = ["a", "b", "c"].map(|own| {
            let options = options.next().unwrap();
            let others: Arc<dyn Peers> = Arc::new(Others { own, world: Arc::downgrade(&world) });
            let server = Server::open(Arc::clone(&store) as Arc<dyn Store>, options.clone());
            let control = server.control.clone();
            if options.sharing == Sharing::Linked {
                control.set_peers(Arc::clone(&others));
                tasks.spawn(control.clone().follow_elsewhere());
                tasks.spawn(control.clone().follow_differences());
                tasks.spawn(control.clone().follow_waves());
                tasks.spawn(control.clone().follow_tests());
            }
            let rest = Rest::with_peers(server, others, options.sharing);
            world.states.lock().unwrap().insert(own, rest.state.clone());
            tasks.spawn(control.follow_store());
            rest
        });
        Self { world, rests, store, _tasks: tasks }
    }

    /// Waits until all serve what the store has.
    pub(super) async fn caught_up(&self) {
        for rest in &self.rests {
            while rest.server.publisher.groups().0.0 < self.store.head().0 {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// These servers take themselves for the leader.
    pub(super) fn lead(&self, ids: &[&'static str]) {
        *self.world.leaders.lock().unwrap() = ids.iter().copied().collect();
    }

    /// A server vanishes, as the others see it; `None`: it is there again.
    pub(super) fn vanish(&self, id: &'static str, is_over: Option<bool>) {
        let mut gone = self.world.gone.lock().unwrap();
        match is_over {
            Some(is_over) => _ = gone.insert(id, is_over),
            None => _ = gone.remove(id),
        }
    }

    pub(super) fn set_silent(&self, ids: &[&'static str]) {
        *self.world.silent.lock().unwrap() = ids.iter().copied().collect();
    }

    /// Puts a cluster at `a` and waits; `then` is done once all serve it.
    async fn put_and(&self, query: &str, text: &str, then: impl FnOnce(u64)) -> (u16, Value) {
        let revision = self.rests[0].server.revision() + 1;
        let body = json!({"name": "a", "alt_stat_name": text, "connect_timeout": "1s"});
        let path = format!("/v1/groups/default/resources/clusters/a?wait=acked&{query}");
        let published = async {
            for rest in &self.rests {
                while rest.server.publisher.groups().0.0 < revision {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            then(revision);
        };
        let (Reply { status, text, .. }, ()) =
            futures_util::future::join(self.rests[0].put(&path, &body), published).await;
        (status, serde_json::from_str(&text).unwrap())
    }
}

fn warnings(answer: &Value) -> String {
    let all = answer["warnings"].as_array().into_iter().flatten();
    all.map(|one| one["detail"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// One of three servers was started with another flag, which concerns documents without a Gateway.
#[tokio::test(start_paused = true)]
async fn a_server_that_serves_something_else_at_the_same_revision_is_a_problem_on_all() {
    let linked = || Options { sharing: Sharing::Linked, ..Options::default() };
    let routes = xds_routes::Options { implicit_port: Some(9090), ..xds_routes::Options::default() };
    let three = Three::with_each([linked(), Options { routes, ..linked() }, linked()]);
    let told = |n: usize| {
        let problems = three.rests[n].server.control.problems();
        problems.into_iter().find(|problem| problem.contains("serve something else")).unwrap_or_default()
    };
    let put = async |path: &str, body: Value| {
        let reply = three.rests[0].put(path, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        three.caught_up().await;
        sleep(Duration::from_secs(5)).await;
    };
    put("/v1/groups/default/resources/clusters/a", json!({"name": "a", "connect_timeout": "1s"})).await;
    assert_eq!([0, 1, 2].map(told), [""; 3], "the same for all");
    let shop = json!({"version": "xds-server/v1", "routes": {"shop": {"hosts": ["shop.test"], "rules": [{"to": "one"}]}},
                      "backends": {"one": {"endpoints": "10.0.0.2:80"}}});
    let applied = three.rests[0].call("POST", "/v1/apply", &[JSON], &shop.to_string()).await;
    assert_eq!(applied.status, 200, "{}", applied.text);
    three.caught_up().await;
    sleep(Duration::from_secs(5)).await;
    let revision = three.store.head().0;
    let [one, two, last] = [0, 1, 2].map(told);
    assert!(one.contains(&format!("than this one: b at revision {revision};")), "{one}");
    assert!(two.contains(&format!("a at revision {revision}, c at revision {revision};")), "{two}");
    assert_eq!(one, last);
    // It is over with what makes the difference.
    let deleted = three.rests[0].call("DELETE", "/v1/documents/Route/default/shop", &[], "").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text);
    three.caught_up().await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!([0, 1, 2].map(told), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_the_slowest_client_of_another_server() {
    let three = Three::new();
    let clients = [("n1", 0), ("n2", 1), ("n3", 2)]
        .map(|(node, at)| AckingClient::connect(&three.rests[at].server, at as u64 + 1, node));
    let [one, two, last] = clients;
    let (sender, is_late) = tokio::sync::oneshot::channel();
    let slow = tokio::spawn(async move {
        let revision = is_late.await.unwrap();
        sleep(Duration::from_secs(7)).await;
        last.ack(revision);
        last
    });
    let began = tokio::time::Instant::now();
    let (status, answer) = three
        .put_and("timeout=60s", "1", |revision| {
            one.ack(revision);
            two.ack(revision);
            sender.send(revision).unwrap();
        })
        .await;
    assert_eq!((status, &answer["total"], &answer["acked"]), (200, &json!(3), &json!(3)), "{answer:#}");
    assert!(began.elapsed() >= Duration::from_secs(7), "{:?}", began.elapsed());
    assert_eq!(answer["replicas"], json!({"known": 3, "answered": 3, "missing": []}));
    drop(slow.await.unwrap());
    let acks = three.rests[1].get("/v1/acks").await.json();
    assert_eq!((&acks["acked"], &acks["replicas"]["answered"]), (&json!(3), &json!(3)), "{acks:#}");
    let of_one = three.rests[1].get("/v1/acks?replica=a").await.json();
    assert_eq!((&of_one["acked"], &of_one["replicas"]["known"]), (&json!(1), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn clients_of_all_servers_are_waited_for_without_a_write() {
    let three = Three::new();
    let first = AckingClient::connect(&three.rests[0].server, 1, "edge-1");
    three.put_and("timeout=1s", "1", |revision| first.ack(revision)).await;
    let wait = async || {
        let path = "/v1/acks?uses=current&nodes=edge-*&minClients=2&wait=acked&timeout=2s";
        let reply = three.rests[1].get(path).await;
        (reply.status, reply.json())
    };
    let (status, answer) = wait().await;
    assert_eq!((status, &answer["acked"], &answer["short"]), (202, &json!(1), &json!(1)), "{answer:#}");
    let second = AckingClient::connect(&three.rests[2].server, 2, "edge-2");
    second.ack(1);
    let other = AckingClient::connect(&three.rests[2].server, 3, "mesh-1");
    other.leave_open(1);
    let (status, answer) = wait().await;
    assert_eq!((status, &answer["acked"]), (200, &json!(2)), "{answer:#}");
    assert_eq!(answer["replicas"], json!({"known": 3, "answered": 3, "missing": []}));
    three
        .put_and("timeout=1s", "2", |revision| {
            first.ack(revision);
            second.nack(revision);
        })
        .await;
    let (status, answer) = wait().await;
    let rejecting = [&answer["nacked"], &answer["alreadyFailing"]].map(|all| all[0]["node"].as_str());
    assert!(status == 424 && rejecting.contains(&Some("edge-2")), "{answer:#}");
    three.set_silent(&["c"]);
    assert_eq!(wait().await.0, 202, "the clients of c are not known");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_named_and_never_taken_for_done() {
    let three = Three::new();
    three.set_silent(&["c"]);
    let client = AckingClient::connect(&three.rests[1].server, 1, "n1");
    let (status, answer) = three.put_and("timeout=9s", "1", |revision| client.ack(revision)).await;
    assert_eq!((status, &answer["acked"]), (202, &json!(1)), "{answer:#}");
    assert_eq!((&answer["replicas"]["known"], &answer["replicas"]["answered"]), (&json!(3), &json!(2)));
    assert_eq!(answer["replicas"]["missing"][0]["id"], "c");
    assert!(warnings(&answer).contains("the clients of the server c are not counted"), "{answer:#}");
    // It comes back in time.
    let world = Arc::clone(&three.world);
    tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        world.silent.lock().unwrap().clear();
    });
    let (status, answer) = three.put_and("timeout=60s", "2", |revision| client.ack(revision)).await;
    assert_eq!((status, warnings(&answer)), (200, String::new()), "{answer:#}");
    // Nobody knows whether another server has come.
    three.world.is_store_away.store(true, std::sync::atomic::Ordering::SeqCst);
    let (status, answer) = three.put_and("timeout=1s", "3", |revision| client.ack(revision)).await;
    assert_eq!(status, 202, "{answer:#}");
    assert!(warnings(&answer).contains("other servers may have joined"), "{answer:#}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_vanished_counts_until_its_grace_is_over_or_it_is_forgotten() {
    let three = Three::new();
    let client = AckingClient::connect(&three.rests[1].server, 1, "n1");
    three.vanish("c", Some(false));
    let (status, answer) = three.put_and("timeout=9s", "1", |revision| client.ack(revision)).await;
    assert_eq!((status, &answer["replicas"]["missing"][0]["forgiven"]), (202, &json!(false)), "{answer:#}");
    three.vanish("c", Some(true));
    let (status, answer) = three.put_and("timeout=300s", "2", |revision| client.ack(revision)).await;
    assert_eq!((status, &answer["replicas"]["answered"]), (200, &json!(2)), "{answer:#}");
    assert_eq!(answer["replicas"]["missing"][0]["forgiven"], true);
    assert!(warnings(&answer).contains("the server c do not count any more"), "{answer:#}");
    let a = &three.rests[0];
    let listed = a.get("/v1/replicas").await.json();
    assert_eq!(
        (&listed["replicas"][2]["reached"], &listed["replicas"][0]["own"]),
        (&json!("gone"), &json!(true))
    );
    for (id, status) in [("b", 409), ("x", 404), ("c", 200)] {
        let forgotten = a.call("DELETE", &format!("/v1/replicas/{id}"), &[], "").await;
        assert_eq!(forgotten.status, status, "{id}: {forgotten:?}");
    }
    let (status, answer) = three.put_and("timeout=300s", "3", |revision| client.ack(revision)).await;
    assert_eq!((status, &answer["replicas"]), (200, &json!({"known": 2, "answered": 2, "missing": []})));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_at_another_server_ends_the_wait_and_takes_the_change_back() {
    let three = Three::new();
    let (one, other) = (
        AckingClient::connect(&three.rests[0].server, 1, "n1"),
        AckingClient::connect(&three.rests[2].server, 2, "n2"),
    );
    three.set_silent(&["b"]);
    let (status, problem) =
        three.put_and("timeout=300s&onNack=revert", "1", |revision| other.nack(revision)).await;
    assert_eq!((status, &problem["nacked"][0]["node"]), (424, &json!("n2")), "{problem:#}");
    assert!(problem["reverted"].is_u64(), "{problem:#}");
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_those_of_all_servers_in_pages_without_gaps() {
    let three = Three::new();
    let [a, b, c] = &three.rests;
    let clients: Vec<_> = [(a, "n1"), (c, "n2"), (b, "n3"), (a, "n3"), (b, "n4"), (c, "n5")]
        .into_iter()
        .zip(1..)
        .map(|((rest, node), id)| AckingClient::connect(&rest.server, id, node))
        .collect();
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let page = b.get(&format!("/v1/nodes?limit=2{after}")).await.json();
        assert_eq!(page["replicas"]["answered"], 3, "{page:#}");
        for node in page["nodes"].as_array().unwrap() {
            let streams = node["streams"].as_array().unwrap().iter();
            let at: Vec<_> = streams.map(|stream| stream["replica"].as_str().unwrap()).collect();
            found.push(format!("{} {}", node["id"].as_str().unwrap(), at.join("+")));
        }
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(found, ["n1 a", "n2 c", "n3 a+b", "n4 b", "n5 c"]);
    // A node on two servers counts at both.
    let fleet = a.get("/v1/fleet?sort=id&limit=2&page=2").await.json();
    let shown =
        |node: &Value| format!("{} {}", node["id"].as_str().unwrap(), node["replica"].as_str().unwrap());
    let nodes: Vec<String> = fleet["nodes"].as_array().unwrap().iter().map(shown).collect();
    assert_eq!(nodes, ["n3 a", "n3 b"], "{fleet:#}");
    assert_eq!(
        (&fleet["total"], &fleet["states"]["absent"], &fleet["replicas"]["answered"]),
        (&json!(6), &json!(6), &json!(3))
    );
    assert_eq!(fleet["by"]["group"], json!([{"value": "default", "n": 6}]));
    assert_eq!(a.get("/v1/nodes/n5").await.json()["streams"][0]["replica"], "c");
    assert_eq!(a.get("/v1/nodes/n5?replica=a").await.status, 404);
    assert_eq!(a.get("/v1/nodes?replica=x").await.status, 404);
    let of_b = a.get("/v1/nodes?replica=b").await.json();
    assert_eq!(of_b["nodes"].as_array().unwrap().len(), 2, "{of_b:#}");
    three.set_silent(&["c"]);
    let fleet = a.get("/v1/fleet").await.json();
    assert_eq!((&fleet["total"], &fleet["replicas"]["missing"][0]["id"]), (&json!(4), &json!("c")));
    let page = a.get("/v1/nodes").await.json();
    assert_eq!(
        (page["nodes"].as_array().unwrap().len(), &page["replicas"]["missing"][0]["id"]),
        (3, &json!("c"))
    );
    let missing = a.get("/v1/nodes/n5").await;
    assert!(missing.status == 404 && missing.text.contains("c did not"), "{missing:?}");
    let loads = a.get("/v1/loads").await.json();
    assert_eq!((&loads["complete"], &loads["replicas"]["answered"]), (&json!(false), &json!(2)), "{loads:#}");
    drop(clients);
}
