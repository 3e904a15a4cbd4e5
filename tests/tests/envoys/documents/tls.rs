//! TLS of listeners, with certificates of Secrets, and towards backends, with BackendTLSPolicies.

use anyhow::{Context as _, Result, ensure};
use xds_tests::backend::Backend;
use xds_tests::certificates::{Authority, Issued, TlsFront, ask_tls};
use xds_tests::documents::{World, service, service_with};
use xds_tests::envoy::Envoy;
use xds_tests::rpc::{Ask, Told, UNAVAILABLE};
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

/// An HTTPS listener on the port named `web`.
fn listener(name: &str, host: &str, certificate: &str) -> String {
    format!(
        "  - {{name: {name}, protocol: HTTPS, port: {{web}}, hostname: '{host}', tls: {{certificateRefs: [{certificate}]}}}}\n"
    )
}

fn gateway(listeners: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: web}}\nspec:\n  \
         gatewayClassName: xds-server\n  addresses: [{{value: 127.0.0.1}}]\n  listeners:\n{listeners}\n---\n"
    )
}

/// A route of a listener to a backend, for its host.
fn route(kind: &str, name: &str, section: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web, sectionName: {section}}}]\n  \
         rules: [{{backendRefs: [{{name: {backend}, port: 8080}}]}}]\n---\n"
    )
}

/// Asks until the answer is that backend's, and over a connection with that certificate.
async fn expect_shown(
    world: &World,
    trusted: &Authority,
    host: &str,
    ask: &Ask,
    (issued, backend): (&Issued, &str),
) -> Result<()> {
    let port = world.port("web")?;
    wait_for("the certificate", PATIENCE, async || {
        let (told, shown) = ask_tls(trusted, ([127, 0, 0, 1], port), host, ask).await?;
        told.ensure_from(backend)?;
        ensure!(shown == issued.certificate, "another certificate");
        Ok(())
    })
    .await
    .with_context(|| host.to_owned())
}

/// Asks until connections for this host fail.
async fn expect_no_tls(world: &World, trusted: &Authority, host: &str) -> Result<()> {
    let port = world.port("web")?;
    wait_for("no TLS", PATIENCE, async || {
        let answer = ask_tls(trusted, ([127, 0, 0, 1], port), host, &Ask::get(host, "/")).await;
        ensure!(answer.is_err(), "{:?}", answer.map(|(told, _)| told));
        Ok(())
    })
    .await
    .with_context(|| host.to_owned())
}

#[tokio::test]
async fn the_server_name_chooses_certificate_and_routes() -> Result<()> {
    let mut world = World::start(&["v1", "v2", "v3"]).await?;
    world.ports(&["web"])?;
    let authority = Authority::new()?;
    let certificates = [
        ("first", "first.example.com", "HTTPRoute", "v1"),
        ("second", "second.example.com", "GRPCRoute", "v2"),
        ("wildcard", "*.wildcard.example.org", "HTTPRoute", "v3"),
    ];
    let (mut listeners, mut rest, mut issued) = (String::new(), String::new(), Vec::new());
    for (name, host, kind, backend) in certificates {
        let one = authority.issue(&[host])?;
        listeners += &listener(name, host, &format!("{{name: {name}}}"));
        rest += &(one.secret("default", name) + &route(kind, name, name, backend));
        issued.push(one);
    }
    world.write("gateway.yaml", &(gateway(&listeners) + &rest))?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let get = |host| Ask::get(host, "/");
    let first = "first.example.com";
    expect_shown(&world, &authority, first, &get(first), (&issued[0], "v1")).await?;
    let second = "second.example.com";
    let call = Ask::call(second, "/shop.Shop/Buy");
    expect_shown(&world, &authority, second, &call, (&issued[1], "v2")).await?;
    for host in ["a.wildcard.example.org", "b.wildcard.example.org"] {
        expect_shown(&world, &authority, host, &get(host), (&issued[2], "v3")).await?;
    }
    for host in ["third.example.com", "wildcard.example.org"] {
        expect_no_tls(&world, &authority, host).await?;
    }
    // A connection for one listener is none for another's hosts; what no listener has is not found.
    for (host, code) in [(second, 421), ("a.wildcard.example.org", 421), ("third.example.com", 404)] {
        let (told, _) = ask_tls(&authority, ([127, 0, 0, 1], world.port("web")?), first, &get(host)).await?;
        told.ensure_code(code).context(host)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_secret_takes_down_its_listener_and_no_grpc_client() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    let authority = Authority::new()?;
    let here = authority.issue(&["here.example.com"])?;
    let documents = gateway(
        &(listener("here", "here.example.com", "{name: here}")
            + &listener("gone", "gone.example.com", "{name: gone}")),
    ) + &here.secret("default", "here")
        + &route("GRPCRoute", "here", "here", "v1")
        + &route("GRPCRoute", "gone", "gone", "v2");
    world.write("gateway.yaml", &documents)?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    let call = |host| Ask::call(host, "/shop.Shop/Buy");
    let (in_time, late) = ("here.example.com", "gone.example.com");
    expect_shown(&world, &authority, in_time, &call(in_time), (&here, "v1")).await?;
    expect_no_tls(&world, &authority, late).await?;
    world.expect_listener(("web", "gone"), ("ResolvedRefs", "False", "InvalidCertificateRef")).await?;
    world.expect_listener(("web", "gone"), ("Programmed", "False", "Invalid")).await?;
    world.expect_listener(("web", "here"), ("Programmed", "True", "Programmed")).await?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        for (host, backend) in [(in_time, "v1"), (late, "v2")] {
            let channel = worker.open(&format!("xds:///{host}")).await?;
            assert_eq!(channel.who().await?, backend, "{library} {host}");
        }
    }

    let issued = authority.issue(&[late])?;
    world.write("late.yaml", &issued.secret("default", "gone"))?;
    expect_shown(&world, &authority, late, &call(late), (&issued, "v2")).await?;
    world.expect_listener(("web", "gone"), ("Programmed", "True", "Programmed")).await?;
    expect_shown(&world, &authority, in_time, &call(in_time), (&here, "v1")).await
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_change_of_listeners() -> Result<()> {
    let mut world = World::start(&["v1"]).await?;
    world.ports(&["web"])?;
    let (authority, host) = (Authority::new()?, "shop.example.com");
    let [old, new] = [authority.issue(&[host])?, authority.issue(&[host])?];
    let documents =
        gateway(&listener("https", host, "{name: shop}")) + &route("HTTPRoute", "shop", "https", "v1");
    world.write("gateway.yaml", &documents)?;
    world.write("secret.yaml", &old.secret("default", "shop"))?;
    let envoy = world.envoy(Variant::Delta).await?;
    let ask = Ask::get(host, "/");
    expect_shown(&world, &authority, host, &ask, (&old, "v1")).await?;
    let listeners = world.acked_version("envoy", "Listener").await?;
    let secrets = world.acked_version("envoy", "Secret").await?;

    world.write("secret.yaml", &new.secret("default", "shop"))?;
    expect_shown(&world, &authority, host, &ask, (&new, "v1")).await?;
    assert_eq!(world.acked_version("envoy", "Listener").await?, listeners);
    wait_for("the ACK of the Secret", PATIENCE, async || {
        let now = world.acked_version("envoy", "Secret").await?;
        ensure!(now != secrets, "still {now}");
        Ok(())
    })
    .await?;
    assert_eq!(envoy.stat("listener_manager.listener_modified").await?, 0);
    assert_eq!(envoy.stat("listener_manager.listener_in_place_updated").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_certificate_of_another_namespace_needs_a_grant() -> Result<()> {
    let mut world = World::start(&["v1"]).await?;
    world.ports(&["web"])?;
    let (authority, host) = (Authority::new()?, "shop.example.com");
    let issued = authority.issue(&[host])?;
    let documents = gateway(&listener("https", host, "{name: shop, namespace: vault}"))
        + &issued.secret("vault", "shop")
        + &route("HTTPRoute", "shop", "https", "v1");
    let grant = |kind: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: vault}}\n\
             spec:\n  from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: default}}]\n  \
             to: [{{group: '', kind: Secret, name: shop}}]\n"
        )
    };
    // A grant for routes is none for Gateways.
    world.write("grant.yaml", &grant("HTTPRoute"))?;
    world.write("gateway.yaml", &documents)?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    let refused = ("ResolvedRefs", "False", "RefNotPermitted");
    world.expect_listener(("web", "https"), refused).await?;
    expect_no_tls(&world, &authority, host).await?;

    world.write("grant.yaml", &grant("Gateway"))?;
    expect_shown(&world, &authority, host, &Ask::get(host, "/"), (&issued, "v1")).await?;
    world.expect_listener(("web", "https"), ("ResolvedRefs", "True", "ResolvedRefs")).await?;

    world.config.remove("grant.yaml")?;
    expect_no_tls(&world, &authority, host).await?;
    world.expect_listener(("web", "https"), refused).await
}

/// Backends of one kind of route, by how their policies are.
struct Upstreams {
    world: World,
    _envoy: Envoy,
    /// In front of the backend `good`, with a certificate for `backend.example.com`.
    good: TlsFront,
    /// The listener for clients whose policy wants another name.
    misnamed: TlsFront,
    /// In front of the backend `stranger`, with a certificate of another authority.
    stranger: TlsFront,
}

/// The names of the backends with policies, and the name that each policy wants of their certificate.
const POLICIES: [(&str, &str, &str); 5] = [
    ("good", "ca", "backend.example.com"),
    ("misnamed", "ca", "other.example.com"),
    ("stranger", "ca", "backend.example.com"),
    ("untrusted", "nobody", "backend.example.com"),
    ("plain", "ca", "backend.example.com"),
];

impl Upstreams {
    /// A Service and policy for each of [`POLICIES`], of which the last two are of backends that speak no TLS; and a route of
    /// that kind for each, by the path `/<name>/Call`.
    async fn start(kind: &str) -> Result<Self> {
        let mut world = World::start(&[]).await?;
        world.ports(&["web"])?;
        for name in ["good", "misnamed", "stranger", "untrusted", "plain"] {
            world.backends.insert(name.to_owned(), Backend::start(name).await?);
        }
        let (ours, theirs) = (Authority::new()?, Authority::new()?);
        let certificate = ours.issue(&["backend.example.com"])?;
        let theirs = theirs.issue(&["backend.example.com"])?;
        let good = TlsFront::start(&certificate, world.backends["good"].addr()).await?;
        let misnamed = TlsFront::start(&certificate, world.backends["misnamed"].addr()).await?;
        let stranger = TlsFront::start(&theirs, world.backends["stranger"].addr()).await?;
        let mut documents = ours.config_map("ca");
        let mut rules = String::new();
        for (name, ca, hostname) in POLICIES {
            let addr = match name {
                "good" => good.addr,
                "misnamed" => misnamed.addr,
                "stranger" => stranger.addr,
                name => world.backends[name].addr(),
            };
            documents += &service("default", name, 8080, addr);
            documents += &policy(name, ca, hostname);
            let matches = match kind {
                "HTTPRoute" => format!("path: {{type: PathPrefix, value: /{name}}}"),
                _ => format!("method: {{service: {name}}}"),
            };
            rules +=
                &format!("  - {{matches: [{{{matches}}}], backendRefs: [{{name: {name}, port: 8080}}]}}\n");
        }
        documents += &format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: r}}\nspec:\n  \
             parentRefs: [{{name: web}}]\n  hostnames: [backends.example.com]\n  rules:\n{rules}---\n"
        );
        documents += &gateway("  - {name: http, protocol: HTTP, port: {web}}");
        world.write("documents.yaml", &documents)?;
        let envoy = world.envoy(Variant::Delta).await?;
        Ok(Self { world, _envoy: envoy, good, misnamed, stranger })
    }

    /// Asks each backend, and has the conditions of their policies.
    async fn check(&self, ask: impl Fn(&str) -> Ask, failure: u16) -> Result<()> {
        self.world.expect_from("web", &ask("/good/Call"), "good").await?;
        let names = self.good.server_names();
        ensure!(!names.is_empty() && names.iter().all(|name| name == "backend.example.com"), "{names:?}");
        for name in ["misnamed", "stranger", "untrusted", "plain"] {
            let told: Told = self.world.expect_code("web", &ask(&format!("/{name}/Call")), failure).await?;
            told.ensure_code(failure)?;
            // Not one request came through: neither in spite of the certificate nor in plaintext.
            assert_eq!(self.world.backends[name].n_requests(), 0, "{name}");
        }
        ensure!(self.misnamed.n_failed() > 0 && self.stranger.n_failed() > 0, "they were not asked");
        assert_eq!(self.world.backends["untrusted"].n_accepted(), 0);
        let (good, bad) = (("Accepted", "True", "Accepted"), ("Accepted", "False", "NoValidCACertificate"));
        let (found, lost) =
            (("ResolvedRefs", "True", "ResolvedRefs"), ("ResolvedRefs", "False", "InvalidCACertificateRef"));
        for (name, ca, _) in POLICIES {
            let wanted = if ca == "ca" { [good, found] } else { [bad, lost] };
            for condition in wanted {
                let policy = ("BackendTLSPolicy", "default", name);
                self.world.expect_condition(policy, Some(0), condition).await?;
            }
        }
        Ok(())
    }
}

fn policy(name: &str, ca: &str, hostname: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         targetRefs: [{{group: '', kind: Service, name: {name}}}]\n  validation: {{hostname: {hostname}, caCertificateRefs: \
         [{{group: '', kind: ConfigMap, name: {ca}}}]}}\n---\n"
    )
}

#[tokio::test]
async fn an_http_backend_with_a_policy_is_reached_by_verified_tls_or_not_at_all() -> Result<()> {
    let upstreams = Upstreams::start("HTTPRoute").await?;
    upstreams.check(|path| Ask::get("backends.example.com", path), 503).await
}

#[tokio::test]
async fn a_grpc_backend_with_a_policy_is_reached_by_verified_tls_or_not_at_all() -> Result<()> {
    let upstreams = Upstreams::start("GRPCRoute").await?;
    upstreams.check(|path| Ask::call("backends.example.com", path), UNAVAILABLE).await?;
    // Proxyless clients cannot be given certificates: they must not go without, either.
    let world = &upstreams.world;
    let n_good = world.backends["good"].n_requests();
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///backends.example.com").await?;
        for (name, _, _) in POLICIES {
            let mut calls = Calls::new(3);
            calls.method = format!("/{name}/Call");
            let counts = channel.call(&calls).await?;
            assert_eq!(counts.errors.get("UNAVAILABLE"), Some(&3), "{library} {name}: {counts:?}");
        }
    }
    for (name, _, _) in POLICIES {
        let n = if name == "good" { n_good } else { 0 };
        assert_eq!(world.backends[name].n_requests(), n, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_policy_that_comes_and_goes_changes_how_a_backend_is_reached() -> Result<()> {
    let mut world = World::start(&["v1"]).await?;
    world.ports(&["web"])?;
    let authority = Authority::new()?;
    let certificate = authority.issue(&["backend.example.com"])?;
    let front = TlsFront::start(&certificate, world.backends["v1"].addr()).await?;
    let documents = gateway("  - {name: http, protocol: HTTP, port: {web}}")
        + &route("HTTPRoute", "r", "http", "shop")
        + &authority.config_map("ca")
        + &service_with("default", "shop", 8080, &[front.addr], "");
    world.write("documents.yaml", &documents)?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    let ask = Ask::get("a.com", "/");
    // The backend speaks TLS, and is spoken to in plaintext.
    let fails = |told: &Told| {
        ensure!(matches!(told.code, 502 | 503), "{told:?}");
        Ok(())
    };
    world.expect("web", &ask, fails).await?;
    world.write("policy.yaml", &policy("shop", "ca", "backend.example.com"))?;
    world.expect_from("web", &ask, "v1").await?;
    world.config.remove("policy.yaml")?;
    world.expect("web", &ask, fails).await.map(drop)
}

#[tokio::test]
async fn a_backend_of_the_native_form_brings_its_authority_along() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    let (ours, theirs) = (Authority::new()?, Authority::new()?);
    let front = TlsFront::start(&ours.issue(&["backend.example.com"])?, world.backends["v1"].addr()).await?;
    let backend = |name: &str, authority: &Authority| {
        let pem: String = authority.pem().lines().map(|line| format!("        {line}\n")).collect();
        format!(
            "  {name}:\n    endpoints: ['{}']\n    tls:\n      sni: backend.example.com\n      ca: |\n{pem}",
            front.addr
        )
    };
    let documents = format!(
        "version: xds-server/v1\nlisteners:\n  edge: {{port: {{web}}}}\nroutes:\n  shop:\n    hosts: [shop.example.com]\n    \
         rules:\n    - {{match: {{prefix: /good}}, to: good}}\n    - {{match: {{prefix: /bad}}, to: bad}}\nbackends:\n{}{}",
        backend("good", &ours),
        backend("bad", &theirs),
    );
    world.write("native.yaml", &documents)?;
    let _envoy = world.envoy(Variant::Delta).await?;
    world.expect_from("web", &Ask::get("shop.example.com", "/good"), "v1").await?;
    world.expect_code("web", &Ask::get("shop.example.com", "/bad"), 503).await.map(drop)
}
