//! SMI TrafficSplit, as Envoys and gRPC clients see it.

use anyhow::{Result, ensure};
use xds_tests::documents::World;
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::{Setup, Variant};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

/// Services `website`, `website-v1`, `website-v2`, all on the port named `web`.
async fn world() -> Result<World> {
    let mut world = World::start_with(Setup::new()?, &[]).await?;
    world.ports(&["web"])?;
    let port = world.port("web")?;
    let mut text = String::new();
    for name in ["website", "website-v1", "website-v2"] {
        let backend = xds_tests::backend::Backend::start(name).await?;
        text += &xds_tests::documents::service("default", name, port, backend.addr());
        world.backends.insert(name.to_owned(), backend);
    }
    world.config.write("services.yaml", &text)?;
    Ok(world)
}

fn split(v1: u32, v2: u32, matches: &str) -> String {
    format!(
        "kind: TrafficSplit\napiVersion: split.smi-spec.io/v1alpha4\nmetadata: {{name: website}}\nspec:\n  \
         service: website\n{matches}  backends:\n  - {{service: website-v1, weight: {v1}}}\n  \
         - {{service: website-v2, weight: {v2}}}\n"
    )
}

fn get() -> Ask {
    Ask::get("website", "/")
}

#[tokio::test]
async fn weights_split_the_root_service_and_its_deletion_gives_it_back() -> Result<()> {
    let mut world = world().await?;
    world.write("split.yaml", &split(90, 10, ""))?;
    let envoy = world.envoy(Variant::Delta).await?;
    world.expect("web", &get(), Told::ensure_ok).await?;
    let mut n_v2 = 0;
    for _ in 0..500 {
        let told = world.ask("web", &get()).await?;
        ensure!(told.backend != "website", "{told:?}");
        n_v2 += usize::from(told.backend == "website-v2");
    }
    ensure!((20..=85).contains(&n_v2), "{n_v2} of 500");
    for host in ["website.default", "website.default.svc", "website.default.svc.cluster.local"] {
        let told = world.ask("web", &Ask::get(host, "/")).await?;
        ensure!(told.code == 200, "{host}: {told:?}");
    }
    world.write("split.yaml", &split(0, 1, ""))?;
    world.expect_from("web", &get(), "website-v2").await?;

    world.config.remove("split.yaml")?;
    world.expect_from("web", &get(), "website").await?;
    let notes = async |world: &World| -> Result<bool> {
        let files = world.server.get_json("/v1/status/files").await?;
        Ok(files.to_string().contains("once-split"))
    };
    ensure!(notes(&world).await?);
    // Another Envoy after a restart of the server finds it as well.
    world.server.restart().await?;
    world.server.wait_ready().await?;
    ensure!(notes(&world).await?);
    drop(envoy);
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &get(), "website").await.map(drop)
}

#[tokio::test]
async fn matches_split_what_they_match_and_the_rest_goes_to_the_root() -> Result<()> {
    let world = world().await?;
    let group = "kind: HTTPRouteGroup\napiVersion: specs.smi-spec.io/v1alpha4\nmetadata: {name: ab-test}\nspec:\n  \
                 matches:\n  - {name: firefox, headers: {user-agent: '.*Firefox.*'}}\n---\n";
    let matches = "  matches: [{kind: HTTPRouteGroup, name: ab-test}]\n";
    world.write("split.yaml", &(group.to_owned() + &split(0, 100, matches)))?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &get().with("user-agent", "Mozilla Firefox 1"), "website-v2").await?;
    world.expect_from("web", &get().with("user-agent", "curl"), "website").await.map(drop)
}

#[tokio::test]
async fn grpc_clients_dial_the_root_service() -> Result<()> {
    let world = world().await?;
    world.write("split.yaml", &split(1000, 500, ""))?;
    let port = world.port("web")?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open(&format!("xds:///website.default.svc.cluster.local:{port}")).await?;
        wait_for("the split", PATIENCE, async || {
            let counts = channel.call(&Calls::new(300)).await?;
            counts.ensure_no_errors()?;
            ensure!((60..=140).contains(&counts.n_of("website-v2")), "{library}: {counts:?}");
            ensure!(counts.n_of("website") == 0, "{library}: {counts:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
