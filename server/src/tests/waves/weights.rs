//! Overrides of weights and wave deployments.

use super::super::rest::Reply;
use super::super::weights::{ANY, HALVES, MERGE, ROUTES, RULE, load, route};
use super::*;

const N_CLIENTS: usize = 60;

fn with_files(store: &Arc<MemoryStore>, waves: Option<WavePolicy>) -> Rest {
    let options = Options { watches_files: true, waves, ..Options::default() };
    let server = Server::open(Arc::clone(store) as Arc<dyn Store>, options).following_waves();
    tokio::spawn(server.control.clone().end_overrides());
    Rest::new(server)
}

async fn patch(rest: &Rest, path: &str, query: &str, (v1, v2): (u32, u32)) -> Reply {
    let body = json!({"backends": {"v1:80": v1, "v2:80": v2}}).to_string();
    rest.call("PATCH", &format!("{path}?{query}"), &[MERGE, ANY], &body).await
}

async fn set(rest: &Rest, query: &str, weights: (u32, u32)) -> u64 {
    let reply = patch(rest, RULE, query, weights).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["waveDeployment"].as_u64().unwrap_or_default()
}

async fn backends(rest: &Rest) -> Value {
    rest.get(RULE).await.json()["effective"].clone()
}

#[tokio::test(start_paused = true)]
async fn weights_reach_the_members_first_and_a_nack_brings_the_former_override_back() {
    let store = MemoryStore::new();
    let rest = with_files(&store, None);
    load(&rest, &route("", HALVES)).await;
    set(&rest, "", (80, 20)).await;
    let mut fleet = Fleet::connect_for_routes(&rest.server, N_CLIENTS, ROUTES);
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS);
    let id = set(&rest, "waves=30%25&hold=1h", (50, 50)).await;
    let report = fleet.until_held_at(&rest.server, "30%").await;
    assert_eq!(report.objects, ["weights/GRPCRoute/prod/greeter/0"]);
    let members = fleet.expected(id, "30%");
    assert!(!members.is_empty() && members.len() < N_CLIENTS, "{members:?}");
    assert_eq!(fleet.with(ROUTES, "50/50"), members);
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS - members.len());

    // The rule is held, other rules of the object are not.
    let refused = patch(&rest, RULE, "", (1, 2)).await;
    assert_eq!((refused.status, &refused.json()["waveDeployment"]), (409, &json!(id)), "{}", refused.text);
    let other = RULE.replace("/0", "/fixed");
    let body = json!({"backends": {"v1:80": 7}}).to_string();
    let reply = rest.call("PATCH", &other, &[MERGE, ANY], &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);

    // A restart finds it as it was.
    drop((rest, fleet));
    let rest = with_files(&store, None);
    load(&rest, &route("", HALVES)).await;
    let mut fleet = Fleet::come_back_for_routes(&rest.server, N_CLIENTS, ROUTES);
    assert_eq!(fleet.with(ROUTES, "50/50"), members);
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS - members.len());
    rest.server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    fleet.pump(&rest.server);
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS);
    assert_eq!(backends(&rest).await, json!({"v1:80": 80.0, "v2:80": 20.0}));

    // Rejected by one of its members.
    let members = fleet.expected(rest.server.revision() + 1, "30%");
    fleet.reject(&members[..1], Some("60/40"));
    set(&rest, "waves=30%25&hold=1h", (60, 40)).await;
    fleet.until_phase(&rest.server, WavePhase::Reverted).await;
    fleet.pump(&rest.server);
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS);
    assert_eq!(backends(&rest).await, json!({"v1:80": 80.0, "v2:80": 20.0}));
}

#[tokio::test(start_paused = true)]
async fn weights_of_a_written_route_configuration_go_by_waves_too() {
    let rest = with_files(&MemoryStore::new(), None);
    load(&rest, &route("", HALVES)).await;
    let body = json!({"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
        {"name": "main", "match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
            {"name": "a", "weight": 9}, {"name": "b", "weight": 1}]}}}]}]});
    assert_eq!(rest.put("/v1/groups/default/resources/routes/r", &body).await.status, 200);
    let mut fleet = Fleet::connect_for_routes(&rest.server, N_CLIENTS, "r");
    let path = "/v1/weights/RouteConfiguration/default/r/v%2Fmain?waves=30%25&hold=10s";
    let change = json!({"backends": {"a": 5, "b": 5}}).to_string();
    let reply = rest.call("PATCH", path, &[MERGE, ANY], &change).await;
    let id = reply.json()["waveDeployment"].as_u64().unwrap();
    fleet.until_held_at(&rest.server, "30%").await;
    let members = fleet.expected(id, "30%");
    assert_eq!(fleet.with("r", "5/5"), members);
    assert_eq!(fleet.with("r", "9/1").len(), N_CLIENTS - members.len());
    fleet.until_phase(&rest.server, WavePhase::Completed).await;
    assert_eq!(fleet.with("r", "5/5").len(), N_CLIENTS);
}

#[tokio::test(start_paused = true)]
async fn an_override_that_ends_while_it_is_held_ends_for_the_members_and_blocks_nothing() {
    let rest = with_files(&MemoryStore::new(), None);
    load(&rest, &route("", HALVES)).await;
    set(&rest, "", (80, 20)).await;
    let mut fleet = Fleet::connect_for_routes(&rest.server, N_CLIENTS, ROUTES);
    // The time of overrides is that of the clock, which the test does not stop.
    let body = json!({"backends": {"v1:80": 50, "v2:80": 50}, "expires": "2s"}).to_string();
    let path = format!("{RULE}?waves=30%25&hold=100h");
    let reply = rest.call("PATCH", &path, &[MERGE, ANY], &body).await;
    let id = reply.json()["waveDeployment"].as_u64().unwrap();
    let members = fleet.expected(id, "30%");
    fleet.until(&rest.server, "the members", |fleet| fleet.with(ROUTES, "50/50") == members).await;
    let ended = std::time::Instant::now() + Duration::from_secs(20);
    while fleet.with(ROUTES, "90/10") != members {
        assert!(std::time::Instant::now() < ended, "the members have what the file says once the time is up");
        tokio::time::sleep(Duration::from_millis(20)).await;
        fleet.pump(&rest.server);
    }
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS - members.len());
    rest.server.control.write(put("default", "x", "1"), WriteOptions::default()).await.unwrap();
    rest.server.control.wave(id, WaveVerb::Abort, "me".to_owned()).await.unwrap();
    fleet.pump(&rest.server);
    assert_eq!(fleet.with(ROUTES, "80/20").len(), N_CLIENTS);
}

#[tokio::test(start_paused = true)]
async fn an_override_that_a_file_catches_up_with_stays_until_the_deployment_of_the_file_is_done() {
    let rest = with_files(&MemoryStore::new(), Some(policy("30%", 3_600)));
    load(&rest, &route("", HALVES)).await;
    let at_once = "waves=none";
    set(&rest, at_once, (50, 50)).await;
    let mut fleet = Fleet::connect_for_routes(&rest.server, N_CLIENTS, ROUTES);
    let caught_up = HALVES.replace("90", "50").replace("10}", "50}");
    load(&rest, &route("", &caught_up)).await;
    let report = newest(&rest.server).unwrap();
    fleet.pump(&rest.server);
    assert_eq!(fleet.with(ROUTES, "50/50").len(), N_CLIENTS, "those behind too");
    rest.server.control.write(put("default", "x", "1"), WriteOptions::default()).await.unwrap_err();
    let waves = WriteOptions { waves: WaveChoice::AtOnce, ..WriteOptions::default() };
    rest.server.control.write(put("default", "x", "1"), waves).await.unwrap();
    assert_eq!(rest.get(RULE).await.json()["overridden"], json!(true));

    // The file takes it back: nothing is lost.
    load(&rest, &route("", HALVES)).await;
    let ended = newest(&rest.server).unwrap();
    assert_eq!((ended.deployment, ended.phase), (report.deployment, WavePhase::Reverted), "{ended:?}");
    fleet.pump(&rest.server);
    assert_eq!(fleet.with(ROUTES, "50/50").len(), N_CLIENTS);
    load(&rest, &route("", &caught_up)).await;
    let again = newest(&rest.server).unwrap().deployment;
    assert_ne!(again, report.deployment);
    rest.server.control.wave(again, WaveVerb::Promote, "me".to_owned()).await.unwrap();
    assert_eq!(rest.get(RULE).await.json()["overridden"], json!(false), "dropped when everyone has the file");
    fleet.pump(&rest.server);
    assert_eq!(fleet.with(ROUTES, "50/50").len(), N_CLIENTS);
}
