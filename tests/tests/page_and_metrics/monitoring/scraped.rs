//! A real Prometheus that reads real servers, and evaluates everything in `monitoring/`.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use xds_tests::config::{CLUSTER, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::etcd::Etcd;
use xds_tests::prometheus::Prometheus;
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup, Variant, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};

use super::exported::{ROUTES, do_harm, take_part};
use super::files::root;
use super::pages::collect;
use super::{dashboards, rules};

/// Servers that have everything of which a dashboard shows something: one with TLS, files and an Envoy, one that relays it, and two that
/// share a store.
struct Fleet {
    alone: Server,
    others: Vec<Server>,
    dir: ConfigDir,
    _envoy: Envoy,
    _etcd: Etcd,
    _key: TempDir,
}

impl Fleet {
    /// `None` without an etcd.
    async fn start() -> Result<Option<Self>> {
        let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(None) };
        let dir = ConfigDir::new()?;
        dir.write("shop.yaml", &ROUTES.replace("10000", &free_addr()?.port().to_string()))?;
        let alone = Server::start_with(Setup::new()?.watch(dir.path()).encrypted()?).await?;
        alone.wait_ready().await?;
        let envoy = Envoy::start(&alone.bootstrap_envoy("edge-2", Variant::Sotw).await?).await?;
        envoy.wait_live().await?;
        let relay = json!({
            "servers": [alone.xds().to_string()],
            "identities": [{"group": {"name": "default"}, "node": {"id": "relay-1", "cluster": "edge"}}],
        });
        let relay = dir.write("relay.conf", &relay.to_string())?;
        let relay = Setup::new()?.arg("--relay").arg(relay.display().to_string());
        let mut others = vec![Server::start_with(relay).await?];
        let key = TempDir::new()?;
        fs::write(key.path().join("key"), "5a".repeat(32))?;
        for id in ["one", "two"] {
            let setup = Setup::new()?.arg("--store").arg(etcd.url()).arg(format!("--instance-id={id}"));
            let setup = setup.arg("--store-key-file").arg(key.path().join("key").display().to_string());
            others.push(Server::start_with(setup.arg("--peer-listen=127.0.0.1:0")).await?);
        }
        Ok(Some(Self { alone, others, dir, _envoy: envoy, _etcd: etcd, _key: key }))
    }

    fn addrs(&self) -> Vec<SocketAddr> {
        std::iter::once(&self.alone).chain(&self.others).map(Server::admin).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_evaluates_everything_and_no_alert_fires_until_something_is_ill() -> Result<()> {
    let Some(fleet) = Fleet::start().await? else { return Ok(()) };
    let rules = root().join("monitoring/prometheus/alerts.yml");
    let Some(prometheus) = Prometheus::start(JOB, &fleet.addrs(), &rules).await? else { return Ok(()) };
    wait_scrapes(&prometheus, fleet.addrs().len()).await?;
    let mut client = take_part(&fleet.alone, 0).await?;

    let expressions = expressions()?;
    check_selections(&prometheus, &fleet, &expressions).await?;
    wait_values(&prometheus, &expressions, |expression| !needs_harm(expression)).await?;
    wait_silence(&prometheus).await?;

    // Now the same with what is ill.
    do_harm(&fleet.alone).await?;
    fleet.alone.put("/v1/groups/default/resources", &resources(&[plain_cluster("one", 2)])).await?;
    let response = client.expect_type(CLUSTER).await?;
    client.nack(&response, &[], "1", "no").await?;
    fleet.dir.write("bad.yaml", "version: xds-server/v1\nroutes: { bad: { to: { one: 5% } } }\n")?;
    wait_values(&prometheus, &expressions, |_| true).await?;
    for (alert, state) in [
        ("XdsChangesRejected", "firing"),
        ("XdsNodesInError", "pending"),
        ("XdsFilesBroken", "pending"),
        ("XdsServerDown", "inactive"),
    ] {
        wait_state(&prometheus, alert, state).await?;
    }
    let firing = alert(&prometheus, "XdsChangesRejected").await?["alerts"][0].take();
    let summary = format!("Clients reject clusters from {}.", fleet.alone.admin());
    ensure!(firing["annotations"]["summary"] == summary.as_str(), "{firing:#}");
    Ok(())
}

/// The dashboard, and the expression of each of its panels.
fn expressions() -> Result<Vec<(String, String)>> {
    let mut expressions = Vec::new();
    for path in dashboards()? {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut targets = Vec::new();
        collect(&dashboard, "expr", &mut targets);
        for target in targets {
            let expression = target["expr"].as_str().context("an expression is a text")?;
            expressions.push((name.clone(), expression.to_owned()));
        }
    }
    Ok(expressions)
}

/// An expression as Grafana sends it.
fn filled_in(expression: &str, (job, instance): (&str, &str)) -> String {
    // For a job that is read every 15 s it would be a minute, for one that is read each second less than this test takes.
    let filled = expression.replace("$__rate_interval", "5m");
    filled.replace("$job", job).replace("$instance", instance)
}

/// Asks for the values of the variables, and evaluates every expression with each selection: all, one value, two values. Any result
/// will do, but no error.
async fn check_selections(
    prometheus: &Prometheus,
    fleet: &Fleet,
    expressions: &[(String, String)],
) -> Result<()> {
    let mut n_queries = 0;
    for path in dashboards()? {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let variables = dashboard["templating"]["list"].as_array().context("variables")?;
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            let query = variable["definition"].as_str().context("a query")?;
            let parts = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selector, label) = parts.and_then(|parts| parts.rsplit_once(", ")).context("a selector")?;
            ensure!(variable["name"] == label, "{query} is of {}", variable["name"]);
            let all = variable["allValue"].as_str().context("a value for all")?;
            let found = prometheus.label_values(label, &filled_in(selector, (all, all))).await?;
            let expected = match label {
                "job" => vec![JOB.to_owned()],
                _ => {
                    let mut addrs: Vec<_> = fleet.addrs().iter().map(SocketAddr::to_string).collect();
                    addrs.sort();
                    addrs
                }
            };
            ensure!(found == expected, "{query}: {found:?}");
            n_queries += 1;
        }
    }
    ensure!(n_queries >= 6, "{n_queries} queries of variables");
    // Grafana escapes a value for a pattern in a text.
    let addrs: Vec<_> = fleet.addrs().iter().map(|addr| addr.to_string().replace('.', "\\\\.")).collect();
    let two = format!("({}|{})", addrs[0], addrs[1]);
    for selection in [(".*", ".*"), (JOB, &addrs[0]), (JOB, &two)] {
        for (dashboard, expression) in expressions {
            let filled = filled_in(expression, selection);
            ensure!(!filled.contains('$'), "{dashboard}: a variable is left in {filled}");
            prometheus.query(&filled).await.with_context(|| format!("{dashboard}: {filled}"))?;
        }
    }
    let of_one = filled_in("sum(xds_ready{job=~\"$job\", instance=~\"$instance\"})", (JOB, &addrs[0]));
    let of_one = prometheus.query(&of_one).await?;
    ensure!(of_one.len() == 1 && of_one[0]["value"][1] == "1", "{of_one:?}");
    Ok(())
}

/// Waits until each of these expressions has a number.
async fn wait_values(
    prometheus: &Prometheus,
    expressions: &[(String, String)],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    let wanted: Vec<_> = expressions.iter().filter(|(_, expression)| is_wanted(expression)).collect();
    ensure!(wanted.len() > 40, "{} of {}", wanted.len(), expressions.len());
    for (dashboard, expression) in wanted {
        let filled = filled_in(expression, (".*", ".*"));
        wait_for("a number", PATIENCE, async || {
            let samples = prometheus.query(&filled).await?;
            // A quantile of nothing is none.
            let has_number = samples.iter().any(|sample| sample["value"][1] != "NaN");
            ensure!(has_number, "{dashboard}: {filled} has {samples:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// True for what has no sample as long as all is well: what is filtered by `> 0`, and what counts failures by reasons, each of
/// which is there from its first failure on. Everything else must have a number.
fn needs_harm(expression: &str) -> bool {
    let of_failures = ["xds_tls_handshake_failures_total", "xds_auth_denied_total"];
    expression.ends_with("> 0") || of_failures.iter().any(|name| expression.contains(name))
}

/// Waits until Prometheus has evaluated all rules without an error after all of the above, and no alert is active: not even
/// pending, because a test ends before most of them would fire.
async fn wait_silence(prometheus: &Prometheus) -> Result<()> {
    let before = prometheus.rules().await?;
    let n_rules = rules::read()?.groups.iter().map(|group| group.rules.len()).sum::<usize>();
    wait_for("silence", PATIENCE, async || {
        let rules = prometheus.rules().await?;
        ensure!(rules.len() == n_rules, "{} rules", rules.len());
        for (rule, before) in rules.iter().zip(&before) {
            ensure!(rule["health"] == "ok" && rule["lastEvaluation"] != before["lastEvaluation"], "{rule:#}");
            ensure!(rule["type"] == "recording" || rule["state"] == "inactive", "{rule:#}");
        }
        Ok(())
    })
    .await?;
    let fired = prometheus.query("max_over_time(ALERTS{alertstate=\"firing\"}[5m])").await?;
    ensure!(fired.is_empty(), "an alert fired for a moment: {fired:#?}");
    for (name, rule) in rules::read()?.alerts() {
        let samples = prometheus.query(&rule.expr).await.context(name.to_owned())?;
        ensure!(samples.is_empty(), "{name}: {samples:?}");
    }
    Ok(())
}

async fn alert(prometheus: &Prometheus, name: &str) -> Result<Value> {
    let rules = prometheus.rules().await?;
    rules.into_iter().find(|rule| rule["name"] == name).with_context(|| name.to_owned())
}

async fn wait_state(prometheus: &Prometheus, name: &str, state: &str) -> Result<()> {
    wait_for("the state of an alert", PATIENCE, async || {
        let alert = alert(prometheus, name).await?;
        ensure!(alert["state"] == state, "not {state}: {alert:#}");
        Ok(())
    })
    .await
}

/// Waits until Prometheus has read all servers, so that it sees what they count from now on.
async fn wait_scrapes(prometheus: &Prometheus, n_servers: usize) -> Result<()> {
    wait_for("scrapes", PATIENCE, async || {
        let up = prometheus.query("up == 1").await?;
        ensure!(up.len() == n_servers, "{up:?}");
        Ok(())
    })
    .await
}

/// The job that the rules and the documentation expect.
const JOB: &str = "xds-server";
