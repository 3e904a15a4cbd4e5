//! `wait=acked`, `onNack=revert` and `/v1/acks`, with streams whose answers the test chooses.

use std::sync::{Mutex, Weak};

use serde_json::Value;
use xds_cache::identity::{DnsName, SpiffeId, Subject, Token};
use xds_cache::status::{
    EventKind, Named, Rejection, Sent, Standing, StreamEntry, StreamEvent, StreamId, StreamInfo, Subscriber,
    Variant,
};
use xds_cache::{Node, Proof, Version, ViewChange, ViewReceiver};

use super::rest::{Reply, Rest};
use super::*;

/// A connected client that wants all clusters.
pub(super) struct AckingClient {
    entry: Arc<StreamEntry>,
    _view: ViewReceiver,
    wishes: Arc<AllClusters>,
}

/// What is known of the names that it subscribes to.
#[derive(Clone, Copy)]
enum Names {
    All,
    NoneChanged,
    /// They are being changed.
    Unknown,
}

struct AllClusters(Mutex<Names>);

impl AllClusters {
    fn all() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Names::All)))
    }
}

impl Subscriber for AllClusters {
    fn concerned(&self, change: &ViewChange) -> Option<Vec<ResourceType>> {
        let clusters = change.changes.keys().filter(|changed| **changed == ResourceType::Cluster);
        match *self.0.lock().unwrap() {
            Names::All => Some(clusters.cloned().collect()),
            Names::NoneChanged => Some(vec![]),
            Names::Unknown => None,
        }
    }
}

impl AckingClient {
    pub(super) fn connect(server: &Server, id: u64, node: &str) -> Self {
        Self::connect_as(server, id, node, None)
    }

    fn connect_as(server: &Server, id: u64, node: &str, service: Option<ResourceType>) -> Self {
        let node = Arc::new(Node::with_id(node));
        let wishes = AllClusters::all();
        let weak: Weak<AllClusters> = Arc::downgrade(&wishes);
        let info = StreamInfo {
            id: StreamId(id),
            node: Arc::clone(&node),
            address: "127.0.0.1:5".into(),
            variant: Variant::Sotw,
            service,
            since: SystemTime::UNIX_EPOCH,
            proofs: Arc::default(),
        };
        let entry = server.board.register(info, weak);
        let mut view = server.publisher.follow(&node);
        let key = view.take().unwrap().key().clone();
        entry.record_view(key, false);
        Self { entry, _view: view, wishes }
    }

    fn subscribe_to(&self, names: Names) {
        *self.wishes.0.lock().unwrap() = names;
    }

    fn sent(&self, revision: u64) -> Sent {
        let sent = Sent {
            nonce: revision,
            version_info: format!("v{revision}").into(),
            revision: Revision(revision),
            is_final: true,
        };
        self.record(EventKind::Sent(sent.clone()));
        sent
    }

    pub(super) fn ack(&self, revision: u64) {
        let sent = self.sent(revision);
        self.record(EventKind::Acked(sent));
    }

    /// Is sent a response, and does not answer.
    pub(super) fn leave_open(&self, revision: u64) {
        self.sent(revision);
    }

    pub(super) fn nack(&self, revision: u64) {
        let sent = self.sent(revision);
        self.record(EventKind::Nacked { sent, message: "no such filter".into(), named: Named::default() });
    }

    pub(super) fn record(&self, kind: EventKind) {
        self.entry
            .record(&StreamEvent { resource_type: ResourceType::Cluster, kind }, SystemTime::UNIX_EPOCH);
    }
}

/// The rejection of a response, of which no resource is known.
fn nack_of(node: &str) -> Value {
    json!({"node": node, "message": "no such filter", "typeUrl": ResourceType::Cluster.type_url()})
}

/// A resource is rejected since a revision.
pub(super) fn standing(name: &str, since: u64) -> EventKind {
    let since = Revision(since);
    let rejection = Rejection {
        name: name.into(),
        version: Version::of(b"1"),
        message: "no".into(),
        version_info: "v".into(),
        revision: since,
        since,
    };
    let since = Some(since);
    EventKind::Standing(Arc::new(Standing { rejected: vec![rejection], n_rejected: 1, n_unknown: 0, since }))
}

fn rest() -> Rest {
    Rest::new(Server::without_files(&MemoryStore::new()))
}

/// Puts a cluster into the default group and waits; `then` is done once it is published.
async fn put_and(rest: &Rest, query: &str, text: &str, then: impl FnOnce()) -> (u16, Value) {
    let before = rest.server.revision();
    let body = json!({"name": "a", "alt_stat_name": text, "connect_timeout": "1s"});
    let path = format!("/v1/groups/default/resources/clusters/a?wait=acked&{query}");
    let published = async {
        while rest.server.publisher.groups().0.0 == before {
            tokio::task::yield_now().await;
        }
        then();
    };
    let (reply, ()) = futures_util::future::join(rest.put(&path, &body), published).await;
    let Reply { status, .. } = reply;
    (status, reply.json())
}

#[tokio::test(start_paused = true)]
async fn nobody_to_wait_for_is_answered_at_once() {
    let rest = rest();
    let (status, answer) = put_and(&rest, "timeout=300s", "1", || {}).await;
    assert_eq!((status, &answer["total"], &answer["acked"]), (200, &json!(0), &json!(0)));
    let warning = |answer: &Value| answer["warnings"][0]["detail"].as_str().unwrap_or_default().to_owned();
    assert!(warning(&answer).starts_with("no connected client asks for"), "{answer}");
    let client = AckingClient::connect(&rest.server, 1, "n1");
    let same = json!({"name": "a", "alt_stat_name": "1", "connect_timeout": "1s"});
    let reply = rest.put("/v1/groups/elsewhere/resources/clusters/a?wait=acked", &same).await;
    assert_eq!((reply.status, &reply.json()["total"]), (200, &json!(0)), "another group's concerns nobody");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_subscriptions_are_being_changed_holds_up_no_write() {
    let rest = rest();
    let [busy, other] = [(1, "busy"), (2, "other")].map(|(id, node)| {
        let client = AckingClient::connect(&rest.server, id, node);
        client.record(EventKind::Subscribed);
        client
    });
    busy.subscribe_to(Names::Unknown);
    let (status, answer) = put_and(&rest, "timeout=100ms", "1", || other.ack(1)).await;
    assert_eq!((status, &answer["total"], &answer["acked"]), (202, &json!(2), &json!(1)), "{answer}");
    assert_eq!((&answer["pending"], &answer["unknown"]), (&json!(["busy"]), &json!(["busy"])), "{answer}");
    // It turns out to subscribe to the cluster, and to accept it.
    let of = async |revision: u64| rest.get(&format!("/v1/acks?revision={revision}")).await.json();
    busy.subscribe_to(Names::All);
    assert_eq!(of(1).await["unknown"], json!([]));
    assert_eq!(of(1).await["pending"], json!(["busy"]));
    busy.ack(1);
    assert_eq!((&of(1).await["total"], &of(1).await["acked"]), (&json!(2), &json!(2)));
    // The next time it turns out not to.
    busy.subscribe_to(Names::Unknown);
    let (status, answer) = put_and(&rest, "timeout=100ms", "2", || {
        busy.subscribe_to(Names::NoneChanged);
        other.ack(2);
    })
    .await;
    assert_eq!((status, &answer["total"], &answer["acked"]), (200, &json!(1), &json!(1)), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_equal_write_waits_for_those_who_do_not_have_it_yet() {
    let rest = rest();
    let first = AckingClient::connect(&rest.server, 1, "n1");
    put_and(&rest, "timeout=1s", "1", || first.ack(1)).await;
    let late = AckingClient::connect(&rest.server, 2, "n2");
    let same = json!({"name": "a", "alt_stat_name": "1", "connect_timeout": "1s"});
    let path = "/v1/groups/default/resources/clusters/a?wait=acked&timeout=100ms";
    let reply = rest.put(path, &same).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["changed"]), (202, &json!(false)), "{answer}");
    assert_eq!((&answer["total"], &answer["pending"]), (&json!(2), &json!(["n2"])));
    late.ack(1);
    let reply = rest.put(path, &same).await;
    assert_eq!((reply.status, &reply.json()["acked"]), (200, &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn an_equal_write_is_rejected_as_the_first_one_was() {
    let rest = rest();
    let client = AckingClient::connect(&rest.server, 1, "n1");
    let (status, first) = put_and(&rest, "timeout=10s", "1", || client.nack(1)).await;
    let same = json!({"name": "a", "alt_stat_name": "1", "connect_timeout": "1s"});
    let again = rest.put("/v1/groups/default/resources/clusters/a?wait=acked&onNack=revert", &same).await;
    assert_eq!((status, again.status), (424, 424));
    assert_eq!((&again.json()["nacked"], &again.json()["reverted"]), (&first["nacked"], &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn some_clients_can_be_demanded_and_late_ones_count() {
    let rest = rest();
    let (status, answer) = put_and(&rest, "timeout=100ms&minClients=2", "1", || {}).await;
    assert_eq!((status, &answer["acked"], &answer["short"]), (202, &json!(0), &json!(2)));
    let mut late = vec![];
    let (status, answer) = put_and(&rest, "timeout=100ms&minClients=2", "2", || {
        for id in [1, 2] {
            let client = AckingClient::connect(&rest.server, id, &format!("n{id}"));
            client.ack(2);
            late.push(client);
        }
    })
    .await;
    assert_eq!((status, &answer["acked"], &answer["short"]), (200, &json!(2), &Value::Null));
    let refused =
        rest.put("/v1/groups/default/resources/clusters/a?minClients=2", &json!({"name": "a"})).await;
    assert!(refused.text.contains("wait=acked"), "{refused:?}");
    let report = rest.get("/v1/acks?revision=1").await.json();
    assert_eq!(
        (&report["total"], &report["acked"], &report["superseded"]),
        (&json!(2), &json!(2), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_rejection_of_what_was_changed_counts() {
    let rest = rest();
    let client = AckingClient::connect(&rest.server, 1, "n1");
    let answer_of = |answer: &Value| answer["nacked"][0].clone();
    let (status, answer) = put_and(&rest, "timeout=100ms", "1", || {
        client.nack(1);
        client.record(standing("b", 1));
        client.record(EventKind::Current(Revision(1)));
    })
    .await;
    assert_eq!((status, &answer["acked"]), (200, &json!(1)), "{answer}");
    let (status, answer) = put_and(&rest, "timeout=100ms", "2", || {
        client.nack(2);
        client.record(standing("a", 2));
        client.record(EventKind::Current(Revision(2)));
    })
    .await;
    let rejected =
        json!({"node": "n1", "message": "no", "typeUrl": ResourceType::Cluster.type_url(), "resource": "a"});
    assert_eq!((status, answer_of(&answer)), (424, rejected));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_concerned_by_what_it_is_granted_and_not_by_what_it_claims() {
    let rest = rest();
    let group = |identities: Value| json!({"selector": {"nodeIds": ["n1"]}, "identities": identities});
    let body = json!({"name": "a", "connect_timeout": "1s"});
    let other = json!([{"cn": "other"}]);
    assert_eq!(rest.put("/v1/groups/guarded", &group(other)).await.status, 200);
    // It claims the group, has proved nothing, and follows the rest.
    let client = AckingClient::connect(&rest.server, 1, "n1");
    let put = rest.put("/v1/groups/guarded/resources/clusters/a?wait=acked", &body).await;
    assert_eq!((put.status, &put.json()["total"]), (200, &json!(0)), "{put:?}");
    let put = rest.put("/v1/groups/guarded?wait=acked", &group(json!([{"cn": "another"}]))).await;
    assert_eq!((put.status, &put.json()["total"]), (200, &json!(0)), "{put:?}");
    let shown = rest.get("/v1/nodes/n1/snapshot").await.json();
    assert_eq!((&shown["groups"], &shown["types"]), (&json!(["default"]), &json!({})), "{shown}");
    drop(client);
}

#[tokio::test]
async fn a_node_is_shown_with_everything_that_it_has_proved() {
    let rest = rest();
    let proof = |subject| Proof { subject, expires: Some(SystemTime::UNIX_EPOCH), certificate: None };
    let proofs = [
        Subject::Spiffe(SpiffeId::new("spiffe://a.org/edge").unwrap()),
        Subject::Dns(DnsName::new("n1.a.org").unwrap()),
        Subject::Token(Arc::new(Token { issuer: "corp".into(), subject: "ada".into(), ..Token::default() })),
    ]
    .map(proof);
    let wishes: Arc<AllClusters> = AllClusters::all();
    let weak: Weak<AllClusters> = Arc::downgrade(&wishes);
    let info = StreamInfo {
        id: StreamId(1),
        node: Arc::new(Node::with_id("n1")),
        address: "127.0.0.1:5".into(),
        variant: Variant::Sotw,
        service: None,
        since: SystemTime::UNIX_EPOCH,
        proofs: proofs.into(),
    };
    let entry = rest.server.board.register(info, weak);
    let stream = rest.get("/v1/nodes/n1").await.json()["streams"][0].clone();
    let end = "1970-01-01T00:00:00.000Z";
    assert_eq!(
        stream["identities"],
        json!([
            {"identity": "spiffe://a.org/edge", "method": "certificate", "expiresAt": end},
            {"identity": "dns:n1.a.org", "method": "certificate", "expiresAt": end},
            {"identity": "jwt:corp:ada", "method": "jwt", "expiresAt": end},
        ])
    );
    assert_eq!((&stream["identitiesCount"], &stream["identity"]), (&json!(3), &json!("spiffe://a.org/edge")));
    drop(entry);
}

#[tokio::test(start_paused = true)]
async fn pitfall_78_done_means_every_concerned_client_has_acked() {
    let rest = rest();
    let clients =
        [AckingClient::connect(&rest.server, 1, "n1"), AckingClient::connect(&rest.server, 2, "n2")];
    let (status, answer) =
        put_and(&rest, "timeout=10s", "1", || clients.iter().for_each(|client| client.ack(1))).await;
    assert_eq!(
        (status, &answer["total"], &answer["acked"], &answer["pending"]),
        (200, &json!(2), &json!(2), &json!([]))
    );
    assert_eq!((&answer["committed"], &answer["revision"]), (&json!(true), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn pitfall_78_stragglers_are_named_when_the_time_is_up() {
    let rest = rest();
    let clients =
        [AckingClient::connect(&rest.server, 1, "n1"), AckingClient::connect(&rest.server, 2, "n2")];
    let (status, answer) = put_and(&rest, "timeout=500ms", "1", || clients[0].ack(1)).await;
    assert_eq!((status, &answer["acked"], &answer["pending"]), (202, &json!(1), &json!(["n2"])));
    clients[1].ack(1);
    let report = rest.get("/v1/acks?revision=1").await.json();
    assert_eq!((&report["total"], &report["acked"], &report["pending"]), (&json!(2), &json!(2), &json!([])));
}

#[tokio::test(start_paused = true)]
async fn pitfall_78_a_nack_is_424_and_the_write_stays() {
    let rest = rest();
    let clients =
        [AckingClient::connect(&rest.server, 1, "n1"), AckingClient::connect(&rest.server, 2, "n2")];
    let (status, problem) = put_and(&rest, "timeout=10s", "1", || clients[0].nack(1)).await;
    assert_eq!((status, &problem["committed"], &problem["revision"]), (424, &json!(true), &json!(1)));
    assert_eq!(problem["nacked"], json!([nack_of("n1")]));
    assert_eq!((&problem["status"], &problem["total"]), (&json!(424), &json!(2)));
    assert_eq!(rest.server.served("default"), pairs(&[("a", "1")]));
    clients[0].ack(2);
    clients[1].ack(1);
    let report = rest.get("/v1/acks?revision=1").await.json();
    assert_eq!((&report["nacked"], &report["acked"]), (&json!([]), &json!(2)), "a newer ACK heals it");
    assert_eq!(report["superseded"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn pitfall_79_only_if_asked_a_nack_takes_the_change_back() {
    let rest = rest();
    let client = AckingClient::connect(&rest.server, 1, "n1");
    put_and(&rest, "timeout=1s", "1", || client.ack(1)).await;
    let (status, problem) = put_and(&rest, "timeout=10s&onNack=revert", "2", || client.nack(2)).await;
    assert_eq!((status, &problem["revision"], &problem["reverted"]), (424, &json!(2), &json!(3)));
    assert_eq!(rest.server.served("default"), pairs(&[("a", "1")]));
    assert_eq!(rest.server.control.history(None, 1).unwrap()[0].source, "revert");
}

#[tokio::test(start_paused = true)]
async fn the_rejection_of_a_client_that_failed_before_takes_nothing_back() {
    let rest = rest();
    let failing = AckingClient::connect(&rest.server, 1, "n1");
    let fine = AckingClient::connect(&rest.server, 2, "n2");
    failing.nack(0);
    let (status, answer) = put_and(&rest, "timeout=10s&onNack=revert", "1", || {
        failing.nack(1);
        fine.ack(1);
    })
    .await;
    assert_eq!((status, &answer["acked"], &answer["total"]), (424, &json!(1), &json!(2)), "{answer}");
    assert_eq!((&answer["nacked"], &answer["reverted"]), (&json!([]), &Value::Null));
    assert_eq!(answer["alreadyFailing"], json!([nack_of("n1")]));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_not_waited_for() {
    let rest = rest();
    let client = AckingClient::connect(&rest.server, 1, "n1");
    let (status, answer) = put_and(&rest, "timeout=10s", "1", move || drop(client)).await;
    assert_eq!((status, &answer["total"]), (200, &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_newer_ack_counts_and_an_older_one_does_not() {
    let rest = rest();
    let client = AckingClient::connect(&rest.server, 1, "n1");
    let (status, _) = put_and(&rest, "timeout=100ms", "1", || client.ack(0)).await;
    assert_eq!(status, 202);
    let (status, answer) = put_and(&rest, "timeout=100ms", "2", || client.ack(5)).await;
    assert_eq!((status, &answer["superseded"]), (200, &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_moves_to_a_new_group_is_concerned() {
    let rest = rest();
    let moved = AckingClient::connect(&rest.server, 1, "n1");
    let other = AckingClient::connect(&rest.server, 2, "n2");
    let body = json!({"resources": [{"@type": ResourceType::Cluster.type_url(), "name": "a"}]});
    let reply = rest.put("/v1/groups/n1/resources", &body).await.json();
    assert_eq!((&reply["revision"], &reply["total"]), (&json!(1), &json!(1)));
    let version = reply["versions"][ResourceType::Cluster.type_url()].as_str().unwrap().to_owned();
    let report = rest.get(&format!("/v1/acks?version={version}")).await.json();
    assert_eq!((&report["revision"], &report["pending"]), (&json!(1), &json!(["n1"])));
    drop((moved, other));
}

#[tokio::test(start_paused = true)]
async fn the_per_type_streams_of_a_connection_are_one_client() {
    let rest = rest();
    let one = AckingClient::connect_as(&rest.server, 1, "n1", Some(ResourceType::Cluster));
    let two = AckingClient::connect_as(&rest.server, 2, "n1", Some(ResourceType::Cluster));
    let of_others =
        AckingClient::connect_as(&rest.server, 4, "n1", Some(ResourceType::ClusterLoadAssignment));
    let ads = AckingClient::connect(&rest.server, 3, "n1");
    let (status, answer) = put_and(&rest, "timeout=100ms", "1", || one.ack(1)).await;
    assert_eq!((status, &answer["total"], &answer["pending"]), (202, &json!(2), &json!(["n1", "n1"])));
    two.ack(1);
    ads.ack(1);
    // Nothing of what changed comes on the stream of another type.
    assert_eq!(rest.get("/v1/acks").await.json()["acked"], json!(2));
    drop(of_others);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_listed_with_the_worst_of_their_streams() {
    let rest = rest();
    let clients: Vec<_> =
        (0..5).map(|n| AckingClient::connect(&rest.server, n, &format!("n{}", n / 2))).collect();
    clients[0].ack(1);
    clients[1].nack(1);
    clients[2].ack(1);
    let list = rest.get("/v1/nodes?limit=2").await.json();
    let ids: Vec<_> =
        list["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &list["next"]), (vec!["n0", "n1"], &json!("n1")));
    let rest_of = rest.get("/v1/nodes?limit=2&after=n1").await.json();
    assert_eq!((&rest_of["nodes"][0]["id"], &rest_of["next"]), (&json!("n2"), &Value::Null));
    let failing = rest.get("/v1/nodes?status=ERROR").await.json();
    assert_eq!(failing["nodes"].as_array().map(Vec::len), Some(1));
    assert_eq!(rest.get("/v1/nodes?group=none").await.json()["nodes"], json!([]));
    let node = rest.get("/v1/nodes/n0").await.json();
    let clusters = &node["types"][ResourceType::Cluster.type_url()];
    assert_eq!((&clusters["status"], &clusters["versionSent"]), (&json!("ERROR"), &json!("v1")));
    assert_eq!(clusters["lastNack"]["message"], json!("no such filter"));
    assert_eq!(clusters["lastNack"]["at"], json!("1970-01-01T00:00:00.000Z"));
    assert_eq!((&node["groups"], &node["profile"]), (&json!(["default"]), &json!("envoy")));
    assert_eq!(node["streams"].as_array().map(Vec::len), Some(2));
    assert_eq!(node["streams"][0]["types"][ResourceType::Cluster.type_url()]["versionAcked"], json!("v1"));
}
