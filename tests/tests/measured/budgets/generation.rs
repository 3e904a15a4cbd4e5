//! Route documents: a short text may generate a route for each host of each listener, so a group has a limit of generated routes.

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::Value;
use tokio::task::JoinSet;
use xds_tests::config::ConfigDir;
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::http::{Answer, Http};
use xds_tests::server::{Server, Setup, cli};

/// A tenth of the default, so that a debug build takes a moment.
const LIMIT: &str = "--max-generated-routes=10000";
const YAML: [(&str, &str); 1] = [("content-type", "application/yaml")];

/// Each of the listeners takes each of the routes.
fn listeners_and_routes(n_listeners: usize, n_routes: usize) -> String {
    let listeners: String = (0..n_listeners).map(|n| format!("  l{n}: {{port: {}}}\n", 10_000 + n)).collect();
    let routes: String = (0..n_routes).map(|n| format!("  r{n:03}: {{to: b}}\n")).collect();
    let backends = "  b: {endpoints: \"127.0.0.1:80\"}\n";
    format!("version: xds-server/v1\nlisteners:\n{listeners}routes:\n{routes}backends:\n{backends}")
}

/// Row 8: 34 kB took 25 s and 2.8 GB.
#[tokio::test]
async fn row_8_a_short_text_gives_no_more_than_its_group_may_have() -> Result<()> {
    let dir = ConfigDir::new()?;
    let setup = Setup::metered()?.watch(dir.path()).arg("--partial-start").arg(LIMIT);
    let setup = setup.arg("--max-trial-memory=1GiB");
    let server = Server::start_with(setup).await?;
    let healthy = Healthy::start(&server).await?;
    let text = listeners_and_routes(1_000, 300);
    ensure!(text.len() < 34_000, "{} bytes", text.len());

    let measurement = Meter::of(&server)?.begin()?;
    let answer = server.request("POST", "/v1/validate", &YAML, text.clone()).await?.success()?.json()?;
    let cost = measurement.cost()?;
    println!("a validation of {} bytes: {cost}", text.len());
    // As many routes as may be, at some kilobytes each; 300,000 would take gigabytes.
    ensure!(cost.peak <= 10_000 * 20_000, "{cost}");
    let told = &answer["diagnostics"].to_string();
    ensure!(told.contains("too-much-generated") && told.contains("--max-generated-routes"), "{told:.2000}");

    // The same documents in a file: the oldest ten are served, and the others are reported at their lines.
    dir.write("many.yaml", &text)?;
    let is_told = |document: &Value| document.to_string().contains("LimitExceeded");
    server.wait_json("/v1/documents", |list| list.to_string().contains("\"r010\"")).await?;
    for (name, expected) in [("r000", false), ("r009", false), ("r010", true), ("r299", true)] {
        let path = format!("/v1/documents/Route/default/{name}");
        server.wait_json(&path, |document| is_told(document) == expected).await?;
    }
    let snapshot = server.get_json("/v1/groups/default/snapshot").await?.to_string();
    ensure!(snapshot.contains("10999"), "the last listener is not served: {snapshot:.2000}");
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// A text that generates thousands of times its length may be served, and is not tried: everybody who may validate could repeat it.
#[tokio::test]
async fn trials_take_memory_by_the_length_of_what_is_tried() -> Result<()> {
    let server = Server::start_with(Setup::metered()?.arg("--max-trial-memory=1MiB")).await?;
    let healthy = Healthy::start(&server).await?;
    let text = listeners_and_routes(100, 100);
    let files = serde_json::json!({"from": "current", "to": {"files": {"a.yaml": text}}}).to_string();
    let json = [("content-type", "application/json")];
    let fits = listeners_and_routes(5, 5);
    server.request("POST", "/v1/validate", &YAML, fits.clone()).await?.success()?;
    for (path, headers, body) in
        [("/v1/validate", &YAML, &text), ("/v1/apply?dryRun=true", &YAML, &text), ("/v1/diff", &json, &files)]
    {
        let measurement = Meter::of(&server)?.begin()?;
        let answer = server.request("POST", path, headers, body.clone()).await?;
        let cost = measurement.cost()?;
        println!("{path} with {} bytes: {cost}", body.len());
        ensure!(answer.status == StatusCode::UNPROCESSABLE_ENTITY, "{path}: {}", answer.text());
        let told = answer.text();
        for part in ["too-much-generated", "bytes so far", "--max-trial-memory", "fewer listeners"] {
            ensure!(told.contains(part), "{path}: {told}");
        }
        ensure!(cost.peak <= (20 << 20) + 20 * body.len() as u64, "{path}: {cost}");
    }
    let text = listeners_and_routes(30, 30);
    server.request("POST", "/v1/apply", &YAML, text.clone()).await?.success()?;
    healthy.check().await?;

    let dir = ConfigDir::new()?;
    dir.write("many.yaml", &text)?;
    let path = dir.path().display().to_string();
    cli(&["validate", &path]).await?;
    let told = cli(&["validate", "--max-trial-memory=100KiB", &path]).await.err().context("it is refused")?;
    ensure!(format!("{told:#}").contains("--max-trial-memory"), "{told:#}");
    Ok(())
}

/// Row 8: validations and dry runs run aside, few at once; a write does not wait for them.
#[tokio::test]
async fn row_8_validations_wait_for_each_other_and_nobody_for_them() -> Result<()> {
    let server = Server::start_with(Setup::metered()?.arg(LIMIT)).await?;
    let healthy = Healthy::start(&server).await?;
    let text = listeners_and_routes(500, 50);
    let mut asked = JoinSet::new();
    for n in 0..20 {
        let url = server.url(if n % 2 == 0 { "/v1/validate" } else { "/v1/apply?dryRun=true" });
        let body = text.clone();
        asked.spawn(async move {
            let request = http::Request::post(url).header("content-type", "application/yaml");
            Http::new().send(request.body(http_body_util::Full::new(body.into()))?).await
        });
    }
    let answers: Vec<Answer> = asked.join_all().await.into_iter().collect::<Result<_>>()?;
    let busy: Vec<_> =
        answers.iter().filter(|answer| answer.status == StatusCode::SERVICE_UNAVAILABLE).collect();
    ensure!(
        !busy.is_empty() && busy.len() < answers.len(),
        "{} of {} are refused",
        busy.len(),
        answers.len()
    );
    for answer in busy {
        ensure!(
            !answer.header("retry-after").is_empty() && answer.text().contains("busy"),
            "{}",
            answer.text()
        );
    }
    let metrics = super::metrics(&server).await?;
    let counted =
        metrics.lines().find(|line| line.contains("reason=\"trials\"")).context("no such reason")?;
    ensure!(!counted.ends_with(" 0"), "{counted}");
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}
