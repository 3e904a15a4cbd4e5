//! A served resource names one that is not served: it is a problem from the moment it is served, until the other one is there.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use xds_tests::config::{ConfigDir, cluster, endpoints, listener, route_config, to};
use xds_tests::server::{Server, Setup, cli, principal};
use xds_tests::wait::{PATIENCE, wait_for};

/// What everyone is told who may see everything: by the server, by its files, by the command line, by the page.
async fn told(server: &Server) -> Result<Vec<String>> {
    let texts = |answer: &Value| -> Vec<String> {
        let problems = answer["problems"].as_array().into_iter().flatten();
        problems.filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let ready = server.get_json("/readyz").await?;
    ensure!(ready["status"] == "ready", "{ready}");
    let problems = texts(&ready);
    ensure!(problems == texts(&server.get_json("/v1/status/files").await?));
    let printed = cli(&["status", "--output=table", &format!("--admin=http://{}", server.admin())]).await?;
    let lines: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("problem: ")).collect();
    // Long lines are cut.
    let is_shown = |(line, problem): (&&str, &String)| problem.starts_with(line.trim_end_matches('…'));
    ensure!(lines.len() == problems.len() && lines.iter().zip(&problems).all(is_shown), "{printed}");
    let page = server.get("/problems").await?.text();
    for problem in &problems {
        let first = problem.split('"').next().unwrap_or_default();
        ensure!(page.contains(first), "{problem} is not on {page}");
    }
    Ok(problems)
}

fn resources(all: &[Value]) -> Value {
    json!({ "resources": all })
}

#[tokio::test]
async fn a_missing_reference_is_a_problem_as_long_as_it_stands() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let path = "/v1/groups/default/resources";
    let backend = ([127, 0, 0, 1], 1).into();
    let rest = [cluster("web"), endpoints("web", &[backend])];
    let served = |more: &[Value]| resources(&[&rest, more].concat());

    // It is there as soon as the write is answered.
    let answer = server.put(path, &served(&[listener("edge", 80, "routes")])).await?;
    let problems = told(&server).await?;
    let expected = "Listener \"edge\" of default names RouteConfiguration \"routes\", which does not exist: an Envoy opens it only \
                    after initial_fetch_timeout (15 s by default) and then answers 404, gRPC clients wait 15 s and then fail every call; \
                    add one to this group or to `default` (field filter_chains[0].filters[0].typed_config.rds.route_config_name)";
    assert_eq!(problems, [expected]);
    // The write was warned in the same words.
    let words = expected.split(" (field").next().unwrap_or_default();
    assert_eq!(
        answer["warnings"][0]["detail"].as_str().map(|detail| detail.contains(words)),
        Some(true),
        "{answer}"
    );
    assert_eq!(answer["warnings"][0]["code"], "dangling-reference");
    assert!(server.get("/metrics").await?.text().contains("xds_problems{subject=\"missing-references\"} 1"));

    // It goes when the reference comes, and another one begins.
    server
        .put(path, &served(&[listener("edge", 80, "routes"), route_config("routes", &[("/", to("wep"))])]))
        .await?;
    let problems = told(&server).await?;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(
        problems[0].starts_with("RouteConfiguration \"routes\" of default names Cluster \"wep\""),
        "{problems:#?}"
    );
    assert!(
        problems[0].contains("answers 503") && problems[0].contains("does not exist (did you mean `web`?)"),
        "{problems:#?}"
    );
    server.put(path, &served(&[route_config("routes", &[("/", to("web"))])])).await?;
    assert_eq!(told(&server).await?, [""; 0]);

    // A removal makes one too, also of endpoints.
    server.put(path, &resources(&[cluster("web"), route_config("routes", &[("/", to("web"))])])).await?;
    let problems = told(&server).await?;
    assert!(
        problems[0].contains("names ClusterLoadAssignment \"web\"") && problems.len() == 1,
        "{problems:#?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_files_that_name_nothing_are_told_with_their_place_and_validate_uses_the_same_words() -> Result<()>
{
    let config = ConfigDir::new()?;
    let path = config.write_resources("edge.yaml", &[listener("edge", 80, "routes")])?;
    let server = Server::start(config.path()).await?;
    server.wait_ready().await?;
    let problems = told(&server).await?;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    let (place, text) = problems[0].split_once(": ").context("no place")?;
    assert!(place.contains("edge.yaml:"), "{place}");
    let text = text.split(" (field").next().unwrap_or_default();
    let printed = cli(&["validate", &path.display().to_string()]).await?;
    assert!(printed.contains(text), "{printed}\nlacks: {text}");
    config.write_resources("routes.yaml", &[route_config("routes", &[])])?;
    wait_for("no problem", PATIENCE, async || {
        let problems = told(&server).await?;
        ensure!(problems.is_empty(), "{problems:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_principal_with_a_scope_learns_of_its_own_groups() -> Result<()> {
    let dir = TempDir::with_prefix("xds-missing-")?;
    let (admin, lines) = principal("admin").await?;
    let mut policy = format!("principals:\n{lines}");
    let (scoped, lines) = principal("viewer").await?;
    policy += &lines;
    policy += "  groups: [mine]\n";
    fs::write(dir.path().join("access.yaml"), &policy)?;
    let setup = Setup::new()?.arg(format!("--access-policy={}", dir.path().join("access.yaml").display()));
    let server = Server::start_with(setup).await?;
    let ask = async |token: &str, method: &str, path: &str, body: String| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("content-type", "application/json")];
        server.request(method, path, &headers, body).await?.success()?.json()
    };
    for group in ["mine", "hidden"] {
        let listener = listener(&format!("of-{group}"), 80, &format!("missing-in-{group}"));
        let body = resources(&[listener]).to_string();
        ask(&admin, "PUT", &format!("/v1/groups/{group}/resources"), body).await?;
    }
    for path in ["/readyz", "/v1/status/files"] {
        let all = ask(&admin, "GET", path, String::new()).await?["problems"].to_string();
        assert!(all.contains("missing-in-mine") && all.contains("missing-in-hidden"), "{path}: {all}");
        let own = ask(&scoped, "GET", path, String::new()).await?["problems"].to_string();
        assert!(own.contains("missing-in-mine") && !own.contains("hidden"), "{path}: {own}");
    }
    let nobody = server.get_json("/readyz").await?["problems"].to_string();
    assert!(nobody.contains("missing-references") && !nobody.contains("mine"), "{nobody}");
    Ok(())
}
