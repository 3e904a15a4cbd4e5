//! Files: pitfalls 11 and 69 to 77.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::Result;
use http::StatusCode;
use serde_json::Value;
use xds_tests::config::{CLUSTER, ConfigDir, ENDPOINTS, cluster, endpoints, route_config, split, to, yaml};
use xds_tests::seen::{names, plain_cluster, resources, served, timeout_of};
use xds_tests::server::{Server, Setup};

use crate::pitfalls::world::{Silence, World};

#[tokio::test]
async fn pitfall_11_one_name_in_two_files_is_an_error_that_names_both() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[plain_cluster("one", 1)])?;
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let before = served(&server).await?;
    dir.write_resources("b.yaml", &[plain_cluster("one", 2), plain_cluster("two", 2)])?;
    let status =
        server.wait_json("/v1/status/files", |s| s.to_string().contains("duplicate-resource")).await?;
    let of_b = status["files"].as_array().and_then(|files| files.last()).map(Value::to_string);
    assert!(
        of_b.as_ref().is_some_and(|of_b| of_b.contains("a.yaml") && of_b.contains("b.yaml")),
        "{status:#}"
    );
    // The first file keeps it, and the rest of the other file is served.
    let snapshot = "/v1/groups/default/snapshot";
    server.wait_json(snapshot, |snapshot| snapshot.to_string().contains("\"two\"")).await?;
    assert_eq!(served(&server).await?["Cluster/one"], before["Cluster/one"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_69_a_bad_file_keeps_its_last_good_and_the_others_go_on() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 1)])?;
    dir.write_resources("b.yaml", &[plain_cluster("b", 1)])?;
    let world = World::with(Setup::new()?.watch(dir.path()), &[]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    stream.expect_type(CLUSTER).await?;
    dir.write("a.yaml", "resources:\n- name: [\n")?;
    dir.write_resources("b.yaml", &[plain_cluster("b", 2)])?;
    let response = stream.expect_type(CLUSTER).await?;
    assert_eq!((timeout_of(&response, "a")?, timeout_of(&response, "b")?), (1, 2));
    world.server.wait_json("/v1/status/files", |s| s.to_string().contains("unclosed bracket")).await?;
    let metrics = world.server.get("/metrics").await?.text();
    assert!(metrics.contains("\nxds_file_errors 1\n"), "{metrics}");
    dir.write_resources("a.yaml", &[plain_cluster("a", 3)])?;
    assert_eq!(timeout_of(&stream.expect_type(CLUSTER).await?, "a")?, 3);
    Ok(())
}

#[tokio::test]
async fn pitfall_70_every_way_to_save_reaches_a_client_and_removes_nothing() -> Result<()> {
    let dir = ConfigDir::new()?;
    let file = dir.write_resources("a.yaml", &[plain_cluster("a", 1)])?;
    let map = dir.path().join("map");
    let version = |n: u64| -> Result<()> {
        let data = map.join(format!("..{n}"));
        fs::create_dir_all(&data)?;
        fs::write(data.join("m.yaml"), yaml(&[plain_cluster("m", n)])?)?;
        symlink(format!("..{n}"), map.join("..new"))?;
        Ok(fs::rename(map.join("..new"), map.join("..data"))?)
    };
    version(1)?;
    symlink("..data/m.yaml", map.join("m.yaml"))?;
    let world = World::with(Setup::new()?.watch(dir.path()), &[]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["a", "m"]);
    for n in 2..22_u64 {
        let text = yaml(&[plain_cluster("a", n)])?;
        let changed = match n % 4 {
            0 => {
                dir.write("a.yaml", &text)?;
                "a"
            }
            1 => {
                fs::write(&file, &text)?;
                "a"
            }
            2 => {
                fs::remove_file(&file)?;
                fs::write(&file, &text)?;
                "a"
            }
            _ => {
                version(n)?;
                "m"
            }
        };
        let response = stream.expect_type(CLUSTER).await?;
        assert_eq!((names(&response)?.len(), timeout_of(&response, changed)?), (2, n), "way {}", n % 4);
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_71_and_72_an_emptied_file_is_an_error_and_what_editors_leave_is_not_read() -> Result<()> {
    let dir = ConfigDir::new()?;
    let documents = format!("{}---\n{}", yaml(&[plain_cluster("a", 1)])?, yaml(&[plain_cluster("b", 1)])?);
    let file = dir.write("sub/two.yml", &documents)?;
    for name in [".hidden.yaml", "x.yaml~", ".x.yaml.swp", "x.txt", ".git/x.yaml"] {
        dir.write(name, "resources: [")?;
    }
    let world = World::with(Setup::new()?.watch(dir.path()), &[]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["a", "b"]);
    fs::write(&file, "")?;
    world.server.wait_json("/v1/status/files", |s| s.to_string().contains("empty-file")).await?;
    silence.of_sotw(&mut stream).await?;
    fs::write(&file, yaml(&[plain_cluster("a", 2), plain_cluster("b", 1)])?)?;
    let response = stream.expect_type(CLUSTER).await?;
    assert_eq!((names(&response)?.len(), timeout_of(&response, "a")?), (2, 2));
    let status = world.server.get_json("/v1/status/files").await?;
    assert_eq!(status["files"].as_array().map(Vec::len), Some(1), "{status}");
    Ok(())
}

#[tokio::test]
async fn pitfall_73_five_hundred_files_at_once_are_few_publications() -> Result<()> {
    let dir = ConfigDir::new()?;
    let write = |n| -> Result<()> {
        for i in 0..500 {
            dir.write(&format!("{i}.yaml"), &resources(&[plain_cluster(&format!("c{i}"), n)]).to_string())?;
        }
        Ok(())
    };
    write(1)?;
    let world = World::with(Setup::new()?.watch(dir.path()), &[]).await?;
    let revision =
        async || anyhow::Ok(world.server.get_json("/v1/history").await?["revisions"][0]["revision"].as_u64());
    let before = revision().await?.unwrap_or_default();
    write(2)?;
    let is_new = |snapshot: &Value| {
        let clusters = snapshot["types"][CLUSTER]["resources"].as_array();
        clusters.is_some_and(|all| {
            all.len() == 500 && all.iter().all(|c| c["resource"]["connect_timeout"] == "2s")
        })
    };
    world.server.wait_json("/v1/groups/default/snapshot", is_new).await?;
    let n = revision().await?.unwrap_or_default() - before;
    assert!((1..=3).contains(&n), "{n} publications");
    Ok(())
}

#[tokio::test]
async fn pitfall_74_what_nobody_names_is_served_and_what_is_missing_is_a_warning() -> Result<()> {
    let dangling =
        [cluster("without-endpoints"), of("nobody", 1), route_config("r", &[("/", to("missing"))])];
    let server = Server::start_with(Setup::new()?).await?;
    let path = "/v1/groups/default/resources";
    let answer = server.put(path, &resources(&dangling)).await?;
    assert!(answer["warnings"].to_string().contains("missing"), "{answer}");
    assert_eq!(served(&server).await?.len(), 3);

    let strict = Server::start_with(Setup::new()?.arg("--strict")).await?;
    let json = ("content-type", "application/json");
    let answer = strict.request("PUT", path, &[json], resources(&dangling).to_string()).await?;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
    assert!(answer.text().contains("missing"), "{}", answer.text());
    // Too many resources are never an error.
    strict.put(path, &resources(&[of("nobody", 1)])).await?;
    Ok(())
}

#[tokio::test]
async fn pitfall_75_an_address_that_is_there_twice_is_refused() -> Result<()> {
    let twice = endpoints("e", &[([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 1).into()]);
    are_refused(&[(twice, "127.0.0.1")]).await
}

#[tokio::test]
async fn pitfall_76_weights_that_clients_would_reject_are_refused() -> Result<()> {
    let weights = |weights: &[(&str, u32)]| route_config("r", &[("/", split(weights))]);
    let zero = weights(&[("a", 0), ("b", 0)]);
    let too_large = weights(&[("a", u32::MAX), ("b", 1)]);
    are_refused(&[(zero, "weight"), (too_large, "weight")]).await
}

async fn are_refused(cases: &[(Value, &str)]) -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    for (bad, words) in cases {
        let body = resources(std::slice::from_ref(bad)).to_string();
        let json = ("content-type", "application/json");
        let answer = server.request("PUT", "/v1/groups/default/resources", &[json], body).await?;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
        assert!(answer.text().contains(words), "{words}: {}", answer.text());
    }
    assert_eq!(served(&server).await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn pitfall_77_an_override_hides_its_file_until_it_goes_also_after_a_restart() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 1)])?;
    let mut server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let path = "/v1/groups/default/resources/clusters/a";
    server.put(path, &plain_cluster("a", 2)).await?;
    let is = |snapshot: &Value, source: &str, timeout: &str| {
        let entry = &snapshot["types"][CLUSTER]["resources"][0];
        entry["source"] == source && entry["resource"]["connect_timeout"] == timeout
    };
    let snapshot = "/v1/groups/default/snapshot";
    server.wait_json(snapshot, |found| is(found, "override", "2s")).await?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 3)])?;
    server.post("/v1/reload", &Value::Null).await?;
    server.wait_json(snapshot, |found| is(found, "override", "2s")).await?;
    server.restart().await?;
    server.wait_ready().await?;
    server.wait_json(snapshot, |found| is(found, "override", "2s")).await?;
    server.delete(path).await?;
    server.wait_json(snapshot, |found| is(found, "file", "3s")).await?;
    // An override that equals the file is dropped; otherwise it would hide the file for ever.
    server.put(path, &plain_cluster("a", 4)).await?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 4)])?;
    server.wait_json(snapshot, |found| is(found, "file", "4s")).await?;
    Ok(())
}

fn of(name: &str, port: u16) -> Value {
    let endpoints = endpoints(name, &[([127, 0, 0, 1], port).into()]);
    assert_eq!(endpoints["@type"], ENDPOINTS);
    endpoints
}
